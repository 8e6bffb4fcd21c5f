"""Finds the source that a request is for, by the listener, host and path it came by, and holds the
endpoint of each source."""
