"""Shares reads of the store among the requests that wait for the same thing: a change wakes every
sidecar of its tenant at once.

INVARIANT: a read begins after every request that it answers. A sidecar counts the age of its policy
set from its request, so what was read before would confirm a state from before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from control_api.store.errors import ReadFault
from control_api.store.group_commit import start_task
from control_api.store.store import Store
from policies.ground.errors import SluiceError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedReads(Generic[K, V]):
    """Of one key, at most one read is under way; requests that arrive meanwhile share the next."""

    def __init__(self, store: Store, read: Callable[[K], Awaitable[V]]) -> None:
        self._store = store
        self._read = read
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._active: set[K] = set()

    async def get(self, key: K) -> V:
        """What is read for the key. Raises what the read raises; `ReadFault` if the service
        stops."""
        if key not in self._active:
            # Its first step is a later one of the event loop, so it serves this request too.
            start_task(self._store.group, self._read_while_awaited(key))
            self._active.add(key)
        found = self._waiting.get(key)
        if found is None:
            found = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            # Shielded: a request that is cancelled leaves the answer to the others.
            return await asyncio.shield(found)
        except SluiceError as error:
            # A new exception for each: one in several tasks would mix up their traces.
            raise type(error)(error.message) from error

    async def _read_while_awaited(self, key: K) -> None:
        try:
            while (found := self._waiting.pop(key, None)) is not None:
                # Requests that arrive from here on wait for the next read.
                try:
                    found.set_result(await self._read(key))
                except Exception as error:  # noqa: BLE001  each request raises it
                    found.set_exception(error)
                finally:
                    if not found.done():  # the service is stopping
                        found.set_exception(ReadFault())
        finally:
            self._active.discard(key)
            if (found := self._waiting.pop(key, None)) is not None:
                found.set_exception(ReadFault())
