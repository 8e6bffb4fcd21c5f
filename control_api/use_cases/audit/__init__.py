"""Use cases on the audit trail, one operation a file."""
