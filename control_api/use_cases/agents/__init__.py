"""Use cases on the agent registry, one operation a file."""
