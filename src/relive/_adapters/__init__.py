"""Code shared by the adapters for other libraries."""
