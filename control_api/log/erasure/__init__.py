"""Erases openings, and finds the `redact` entries that excuse missing ones."""
