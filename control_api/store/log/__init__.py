"""The rows of the audit log: heads, entries, openings and index, and how a batch is written."""
