"""Use cases on tenants, one operation a file."""
