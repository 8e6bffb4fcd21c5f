"""Logs when a database takes no writes, and when it takes them again, instead of a line per write.

Names the database and the cause, such as a full disk, which callers are not told.
"""

import asyncio
import logging

from sqlalchemy import URL

from control_api.store.connection_errors import translate_error
from control_api.store.errors import is_fault

PAUSE_SECONDS = 60.0
"""The shortest time between two lines: a disk that is nearly full takes one write and not the
next."""
_log = logging.getLogger("sluice.store")


class WriteOutage:
    """The outages of the database at `url`, noticed by writes inside `with`, on the event loop."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._ongoing = False
        self._told_at = float("-inf")

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self._ended()
        elif is_fault(error):
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        now = asyncio.get_running_loop().time()
        if self._ongoing or now - self._told_at < PAUSE_SECONDS:
            return
        self._ongoing, self._told_at = True, now
        _log.error("writes to the database fail: %s", translate_error(error, self._url) or error)

    def _ended(self) -> None:
        if self._ongoing:
            _log.warning("recovered: `%s` takes writes again", self._url.database)
        self._ongoing = False
