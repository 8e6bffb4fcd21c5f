"""Use cases on sidecars: policy sets and status, one operation a file."""
