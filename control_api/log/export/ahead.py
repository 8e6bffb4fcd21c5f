"""Reads an export's next page while the one before it is sent. Knows nothing of what a page is."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from control_api.store.group_commit import start_task

T = TypeVar("T")


class Ahead(Generic[T]):
    """At most one page that is being read, or waits to be taken.

    It is read on the service's task group. If the export ends before the page is taken, it is read
    to its end, and dropped.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._page: asyncio.Future[T] | None = None

    def start(self, read: Coroutine[Any, Any, T]) -> None:
        """Begin to read the page that will be taken next. Raises `WriteFault` if the service is
        stopping."""
        self._page = asyncio.get_running_loop().create_future()
        start_task(self._group, _complete(read, self._page))

    async def take(self) -> T:
        """The page that was started. Raises what reading it raised."""
        assert self._page is not None
        page, self._page = self._page, None
        return await page

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # asyncio would log an error that is never taken as one that was overlooked.
        if self._page is not None and not self._page.cancel():
            self._page.exception()


async def _complete(read: Coroutine[Any, Any, T], page: asyncio.Future[T]) -> None:
    try:
        result = await read
    except Exception as error:  # noqa: BLE001  the export handles it
        if not page.done():
            page.set_exception(error)
    else:
        if not page.done():
            page.set_result(result)
