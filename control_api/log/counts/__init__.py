"""The counts of decisions, compared with the log and rebuilt from it."""
