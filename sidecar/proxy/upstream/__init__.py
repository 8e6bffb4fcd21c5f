"""The data source's side: requests out, and responses in."""
