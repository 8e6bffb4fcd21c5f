"""Listens for the notices of other processes (`control_api.store.notices`), on one connection that
does nothing else.

    connect > LISTEN > probe: a notice of our own, sent where the service writes, has to arrive
                       again every `PROBE_INTERVAL`; without it the connection is given up

The probe finds what would otherwise be silent: a pooler in transaction mode, another database of
the same server, a server that is no longer the primary, a network that drops what is sent. While
there is no such connection, changes are found by reading the tenants' revisions.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from control_api.database_limits import LIMITS
from control_api.store import notices
from control_api.store.errors import FAULTS
from control_api.store.notices import CHANNEL, Notice
from control_api.store.postgresql import engine as hosts
from control_api.store.postgresql.engine import connected
from control_api.store.url import DatabaseUnreachable, UnusableDatabase, translate_error
from policies.ground.errors import Unavailable

PROBE_INTERVAL = 20.0
"""Seconds between two probes."""
PROBE_SECONDS = 5.0
"""Seconds within which a probe must arrive."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""The first and the longest pause (seconds) between two attempts to connect. The pause doubles each
time."""
_SESSION = {"application_name": "sluice notices"}
_log = logging.getLogger("sluice.store")


class NoticesLost(Exception):
    """the connection brings no notices"""


class NoticeListener:
    """Listens for notices. Calls `heard` with each notice, and `listening` with True or False when
    notices begin or cease to arrive.

    `url` is the database to listen at, `setting` the name of the setting that gives it.
    `probe(channel)` sends an empty notice through the connections that the service writes by.
    """

    def __init__(
        self,
        url: URL,
        setting: str,
        probe: Callable[[str], Awaitable[None]],
        heard: Callable[[Notice], None],
        listening: Callable[[bool], None],
    ) -> None:
        self._url = url
        self._setting = setting
        self._probe = probe
        self._heard = heard
        self._listening = listening
        self._echo_channel = f"sluice_echo_{secrets.token_hex(8)}"
        self._news = asyncio.Event()
        self._echoed = False
        self._lost = False
        self._has_listened = False
        self._problem: str | None = None
        self._pause = FIRST_PAUSE
        listening(False)

    async def run(self) -> None:
        """Listen forever, and connect again after every loss. Raises `UnusableDatabase` if the URL
        can't be used. A URL that has worked before is tried again instead, since its role may have
        lost a right only for a while."""
        while True:
            try:
                async with self._connection():
                    while True:
                        await self._check()
                        self._has_listened = True
                        self._report(None)
                        await self._wait_for_loss()
            except (*FAULTS, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self._failed(translate_error(error, self._url) or error)
            except (NoticesLost, Unavailable, UnusableDatabase) as error:
                self._failed(error)
            await asyncio.sleep(random.uniform(self._pause / 2, self._pause))  # noqa: S311  # no secret
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[None]:
        self._lost = False
        engine = create_async_engine(
            self._url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            connect_args=LIMITS.of_connection() | {"server_settings": _SESSION},
        )
        hosts.connect_to_hosts(engine, self._url)
        try:
            async with connected(engine) as connection:
                # This statement's error says what is wrong, such as a standby that can't listen.
                await connection.exec_driver_sql(f"LISTEN {CHANNEL}")
                driver: Any = (await connection.get_raw_connection()).driver_connection
                try:
                    driver.add_termination_listener(self._on_loss)
                    await driver.add_listener(self._echo_channel, self._on_echo)
                    await driver.add_listener(CHANNEL, self._on_notice)
                    yield
                finally:
                    driver.terminate()  # a server that hangs answers no goodbye
        finally:
            await engine.dispose()

    async def _check(self) -> None:
        """Send a probe and wait for it. Raises `NoticesLost` if it does not arrive."""
        self._echoed = False
        await self._probe(self._echo_channel)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                while not self._echoed:
                    await self._next_event()
        except TimeoutError:
            raise NoticesLost(
                "a notice that was sent through SLUICE_DATABASE_URL does not arrive: it must reach "
                "the same database directly, without a pooler in transaction mode"
            ) from None

    async def _wait_for_loss(self) -> None:
        """Wait until the next probe is due. Raises `NoticesLost` if the connection ends."""
        try:
            async with asyncio.timeout(PROBE_INTERVAL):
                while True:
                    await self._next_event()
        except TimeoutError:
            return

    async def _next_event(self) -> None:
        await self._news.wait()
        self._news.clear()
        if self._lost:
            raise NoticesLost("the connection was closed")

    def _on_notice(self, _driver: object, _process: int, _channel: str, payload: object) -> None:
        if (notice := notices.parse(str(payload))) is not None:
            self._heard(notice)

    def _on_echo(self, *_: object) -> None:
        self._echoed = True
        self._news.set()

    def _on_loss(self, _driver: object) -> None:
        self._lost = True
        self._news.set()

    def _failed(self, error: BaseException) -> None:
        # A setting that never worked ends the start. Later, the service can do without notices.
        if isinstance(error, UnusableDatabase) and not self._has_listened:
            raise UnusableDatabase(f"{self._setting}: {error}") from error
        known = isinstance(
            error, NoticesLost | Unavailable | UnusableDatabase | DatabaseUnreachable
        )
        self._report(str(error) if known else type(error).__name__)

    def _report(self, problem: str | None) -> None:
        """Log when notices stop arriving, for each cause, and when they arrive again."""
        self._listening(problem is None)
        if problem is None:
            self._pause = FIRST_PAUSE
            if self._problem is not None:
                _log.warning("recovered: notices of other processes' changes arrive again")
        elif problem != self._problem:
            _log.warning(
                "%s: %s: changes of other processes are found within half a second meanwhile",
                self._setting,
                problem,
            )
        self._problem = problem
