"""The rows of the logs: heads, entries, openings and the index, and how a batch is written."""
