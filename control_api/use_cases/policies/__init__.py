"""Use cases on policies and their versions, one operation a file."""
