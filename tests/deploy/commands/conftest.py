"""Migrated databases of both kinds, for the tests of `--database`."""

from tests.control_api.store.databases import either_url, postgresql_url, sqlite_url

__all__ = ["either_url", "postgresql_url", "sqlite_url"]
