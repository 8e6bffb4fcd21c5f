"""Makes anew what lists and counts read, from the log, which is the truth."""
