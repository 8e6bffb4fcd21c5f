"""The conclusions of a verification about a log: its findings, how far its checkpoints prove it,
and whose keys signed those."""
