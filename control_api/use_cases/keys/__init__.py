"""Use cases on API keys, one operation a file."""
