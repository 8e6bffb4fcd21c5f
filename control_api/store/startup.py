"""Opening a database that may not be there yet: a container that starts beside its database is
often the first of the two. Tries again until a deadline; says each cause once, under the setting's
name. Knows no database.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from control_api.store.connection_errors import DatabaseUnreachable, translate_error
from control_api.store.errors import ReadFault, WriteFault
from control_api.store.url import UnusableDatabase, parse_url

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
    """What `attempt()` returns, tried again for `seconds` while it raises `DatabaseUnreachable`;
    None where
    `stop` was set meanwhile. Raises the last cause, and `UnusableDatabase` at once, both with the
    name of
    the `setting`."""
    deadline, pause = monotonic() + seconds, FIRST_PAUSE
    told: set[str] = set()
    while not stop.is_set():
        try:
            return await attempt()
        except UnusableDatabase as error:
            raise UnusableDatabase(f"{setting}: {error}") from error
        except DatabaseUnreachable as error:
            left = deadline - monotonic()
            if left <= 0:
                raise DatabaseUnreachable(f"{setting}: {error}") from error
            if str(error) not in told:
                told.add(str(error))
                _log.warning("%s: %s; trying again for %.0f s", setting, error, left)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)
    return None


@asynccontextmanager
async def explain_startup_faults(url: str, setting: str) -> AsyncIterator[None]:
    """What a start does with an open database: a fault of the database in it is
    `DatabaseUnreachable`, or
    `UnusableDatabase`, with its cause and the name of the `setting`."""
    try:
        yield
    except (ReadFault, WriteFault) as error:
        cause = error.__cause__ or error
        known = translate_error(cause, parse_url(url)) or DatabaseUnreachable(str(error))
        raise type(known)(f"{setting}: {known}") from error
