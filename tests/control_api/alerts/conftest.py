"""A bare store on both databases, beside the running control APIs of the package above."""

from tests.control_api.store.databases import either_url, postgresql_url, sqlite_url, world

__all__ = ["either_url", "postgresql_url", "sqlite_url", "world"]
