"""Opens a database that may not be up yet: a container often starts before its database.

Retries until a deadline, and logs each distinct cause once, under the setting's name. Knows no
particular database.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from control_api.settings import Settings
from control_api.store.connection_errors import DatabaseUnreachable, translate_error
from control_api.store.errors import ReadFault, WriteFault
from control_api.store.store import Store
from control_api.store.url import UnusableDatabase, parse_url
from policies.ground.clock import Clock

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
_log = logging.getLogger("sluice.store")


async def open_with_retry(
    attempt: Callable[[], Awaitable[T]],
    setting: str,
    seconds: float,
    monotonic: Callable[[], float],
    stop: asyncio.Event,
) -> T | None:
    """Returns `attempt()`, retried for `seconds` while it raises `DatabaseUnreachable`.

    Returns None if `stop` is set first. Raises the last `DatabaseUnreachable` at the deadline, and
    `UnusableDatabase` at once. Both messages begin with the name of the `setting`.
    """
    deadline, pause = monotonic() + seconds, FIRST_PAUSE
    logged: set[str] = set()
    while not stop.is_set():
        try:
            return await attempt()
        except UnusableDatabase as error:
            # Waiting can't fix it, for example a file that is not a database.
            raise UnusableDatabase(f"{setting}: {error}") from error
        except DatabaseUnreachable as error:
            left = deadline - monotonic()
            if left <= 0:
                raise DatabaseUnreachable(f"{setting}: {error}") from error
            if str(error) not in logged:  # a line every two seconds would fill the log
                logged.add(str(error))
                _log.warning("%s: %s; trying again for %.0f s", setting, error, left)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)
    return None


@asynccontextmanager
async def opened_store(
    settings: Settings, clock: Clock, stop: asyncio.Event
) -> AsyncIterator[Store | None]:
    """The store of `settings`, opened with retries and closed at the end; None if `stop` is set
    first. The tasks on `Store.group` belong to this context: it ends if one of them fails."""
    store: Store | None = None
    try:
        async with asyncio.TaskGroup() as group:
            store = await open_with_retry(
                partial(Store.open, settings.database_url, clock, group, settings.database),
                settings.database_setting,
                settings.start_seconds,
                clock.monotonic,
                stop,
            )
            yield store
    finally:
        # The task group has ended, so no write is under way.
        if store is not None:
            await store.close()


@asynccontextmanager
async def command_store(settings: Settings, clock: Clock) -> AsyncIterator[Store]:
    """The store of `settings` for a command, which nothing stops while it waits for the
    database."""
    async with opened_store(settings, clock, asyncio.Event()) as store:
        assert store is not None  # the stop event is never set
        yield store


@asynccontextmanager
async def explain_startup_faults(settings: Settings) -> AsyncIterator[None]:
    """Wraps start-up work on an open database: a database fault in it becomes
    `DatabaseUnreachable` or `UnusableDatabase`, with its cause and the name of the setting."""
    try:
        yield
    except (ReadFault, WriteFault) as error:
        # The service stops on this error, so the operator needs the driver's reason, not the 503
        # that a request would get.
        cause, url = error.__cause__ or error, parse_url(settings.database_url)
        known = translate_error(cause, url) or DatabaseUnreachable(str(error))
        raise type(known)(f"{settings.database_setting}: {known}") from error
