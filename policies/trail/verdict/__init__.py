"""The conclusions of a verification about a log: its findings, its checkpoints, and whose keys
signed them."""
