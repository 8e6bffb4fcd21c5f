"""The audit trail: records in, events out, and the proof that nothing was changed in between.

README.md follows one record through it. Knows the store. Knows nothing of HTTP, nor of how a
decision is made.
"""
