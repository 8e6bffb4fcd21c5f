"""All tables, the same on SQLite and PostgreSQL. `migrations/` upgrades a database to this schema.

Importing any module of this package makes `columns.metadata` complete.
"""

from control_api.store.schema import features, log, tables

__all__ = ["features", "log", "proofs", "tables"]
