"""Use cases on decisions, one operation a file."""
