"""Use cases on candidates, one operation a file."""
