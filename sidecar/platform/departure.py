"""Breaks work off when the client that it is done for leaves. Knows neither of the two."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Watch = Callable[[Callable[[], None]], None]
"""Calls its argument when the client leaves before it was answered."""


def unwatched(_on_left: Callable[[], None]) -> None:
    """For a caller that stays."""


class Departed(Exception):
    """the client left"""


@asynccontextmanager
async def until_departed(watch: Watch) -> AsyncIterator[None]:
    """Cancels what runs within when the client leaves, and raises `Departed`. Use it in a task
    (`eager.within_task`), and only around what may end at any point."""
    loop = asyncio.get_running_loop()
    over = False

    def left() -> None:
        if not over:
            limit.reschedule(loop.time())

    limit = asyncio.timeout(None)
    try:
        async with limit:
            watch(left)
            yield
    except TimeoutError:
        if limit.expired():
            raise Departed(Departed.__doc__) from None
        raise
    finally:
        over = True
