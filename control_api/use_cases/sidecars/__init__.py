"""Use cases on sidecars, one operation a file."""
