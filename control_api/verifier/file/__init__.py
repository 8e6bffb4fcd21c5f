"""Verifies the file of an export."""
