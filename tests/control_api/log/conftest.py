"""Each test of the log runs on both databases unless it names one."""

from tests.control_api.log.purging import small_steps
from tests.control_api.store.databases import either_url, postgresql_url, sqlite_url, world

__all__ = ["either_url", "postgresql_url", "small_steps", "sqlite_url", "world"]
