"""Where the control API keeps what must last: SQLite in the data directory, or PostgreSQL.

Knows tables, transactions and their order. Knows nothing of HTTP, nor of how a decision is made.
"""
