"""Verifies a log in ranges, so that several processes can share the work."""
