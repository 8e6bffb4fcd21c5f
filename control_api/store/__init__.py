"""Persistent storage of the control API: SQLite in the data directory, or PostgreSQL.

Knows tables, transactions and their order. Knows nothing of HTTP, or of how a decision is made.
"""
