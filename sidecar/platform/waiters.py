"""Ends the wait of a coroutine for a future without a value."""

import asyncio


def wake(waiter: asyncio.Future[None] | None) -> None:
    """End the wait, unless it has ended or nothing waits."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def time_out(waiter: asyncio.Future[None]) -> None:
    """End the wait with `TimeoutError`, unless it has ended."""
    if not waiter.done():
        waiter.set_exception(TimeoutError())
