"""Checks policies without a request: `lint`."""
