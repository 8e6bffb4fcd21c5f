"""Verifies all logs regularly, in the background."""
