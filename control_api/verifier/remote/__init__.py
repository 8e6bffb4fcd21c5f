"""Verifies what is new in the log of a running service since the last time."""
