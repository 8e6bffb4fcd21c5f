"""The spool's files: the operations on them, their byte formats and their names. Knows nothing of
shipping."""
