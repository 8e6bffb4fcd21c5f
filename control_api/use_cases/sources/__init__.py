"""Use cases on the levels that a tenant states of its sources, one operation a file."""
