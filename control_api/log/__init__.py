"""The audit log: appends records, serves events, and verifies that nothing was changed in between.

README.md follows one record through it. Knows the store. Knows nothing of HTTP, or of how a
decision is made.
"""
