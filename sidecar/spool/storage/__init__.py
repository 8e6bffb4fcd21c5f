"""The spool's files: operations, byte formats and names. Knows nothing of shipping."""
