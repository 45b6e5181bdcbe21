"""Fields of a schema, Gymnasium spaces, and steps parsed against a schema."""
