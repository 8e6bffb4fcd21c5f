"""Use cases on decisions, and on the service itself, one operation a file."""
