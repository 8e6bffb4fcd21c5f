"""Use cases on alert rules, one operation a file."""
