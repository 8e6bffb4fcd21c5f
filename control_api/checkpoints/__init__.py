"""Signs checkpoints of every tenant's log, and refuses to if the log contradicts one of them."""
