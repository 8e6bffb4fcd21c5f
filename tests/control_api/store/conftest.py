"""Each test of the store runs on both databases unless it names one."""

from tests.control_api.store.databases import either_url, postgresql_url, sqlite_url, world

__all__ = ["either_url", "postgresql_url", "sqlite_url", "world"]
