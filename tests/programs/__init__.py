"""Fetches the programs of others that tests run."""
