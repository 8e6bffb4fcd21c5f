"""Use cases on sessions, one operation a file."""
