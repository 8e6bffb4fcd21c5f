"""Counts of decisions, kept in step with the log in the same transaction."""
