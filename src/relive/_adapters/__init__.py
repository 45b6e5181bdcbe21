"""What the adapters for other libraries share."""
