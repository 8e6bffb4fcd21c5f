"""Judges the records of sidecars, and lists those that were refused."""
