"""What a verification concludes about a log: its findings, its checkpoints, and whose keys signed
them."""
