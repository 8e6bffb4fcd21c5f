"""An export's next page is read while the one before it is sent."""

import asyncio
import gc

import pytest

from control_api.log.export.rows import Ahead


async def _page(number: int, ready: asyncio.Event) -> int:
    await ready.wait()
    return number


async def _fault() -> int:
    raise OSError("the database does not answer")


async def test_pages_are_taken_in_order_and_read_ahead() -> None:
    ready = asyncio.Event()
    ready.set()
    async with asyncio.TaskGroup() as group, Ahead[int](group) as pages:
        pages.start(_page(1, ready))
        assert await pages.take() == 1
        ready.clear()
        pages.start(_page(2, ready))
        ready.set()
        assert await pages.take() == 2


async def test_an_error_reaches_the_export_and_not_the_service() -> None:
    async with asyncio.TaskGroup() as group, Ahead[int](group) as pages:
        pages.start(_fault())
        with pytest.raises(OSError, match="does not answer"):
            await pages.take()


async def test_a_page_that_is_not_taken_is_dropped_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        async with Ahead[int](group) as pages:
            pages.start(_page(1, ready))
        ready.set()
        async with Ahead[int](group) as pages:
            pages.start(_fault())
            await asyncio.sleep(0)
    gc.collect()
    assert not caplog.records
