"""Connects to the one of several PostgreSQL hosts that serves: a primary and its standbys.

A machine that is gone may not even refuse a connection, and the driver's time limit is for all
hosts together. So each host is tried on its own, with a share of the time, and the one that
answered last comes first.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg
from sqlalchemy import URL, Dialect, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine

_UNUSABLE = (
    OSError,  # refused, or no answer in time
    asyncpg.PostgresConnectionError,  # closed at once, by a proxy without a server
    asyncpg.CannotConnectNowError,  # it starts or stops
    asyncpg.TargetServerAttributeNotMatched,  # a standby, with `target_session_attrs=read-write`
)


def listen(engine: AsyncEngine, url: URL) -> None:
    """Makes the engine connect as above, if `url` has several hosts."""
    if isinstance(url.query.get("host"), tuple):
        event.listen(engine.sync_engine, "do_connect", Hosts().connect)


class Hosts:
    """Remembers which host to try first."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def connect(
        self, dialect: Dialect, _record: object, cargs: Sequence[Any], cparams: dict[str, Any]
    ) -> DBAPIConnection:
        """A connection to the first host that can be used. Raises the last host's error, a fault
        that may pass (`control_api.store.errors`)."""
        hosts = list(zip(cparams["host"], cparams["port"], strict=True))
        hosts.sort(key=lambda each: each != self._last)
        seconds = cparams["timeout"] / len(hosts)
        fault: Exception | None = None
        for host, port in hosts:
            try:
                one = {**cparams, "host": host, "port": port, "timeout": seconds}
                made = dialect.connect(*cargs, **one)
            except _UNUSABLE as error:
                fault = error
            else:
                self._last = (host, port)
                return made
        if isinstance(fault, OSError):
            raise fault
        # No error of SQLAlchemy's: it would not count as a fault of the database.
        raise ConnectionError(f"no host can be used: {fault}") from fault
