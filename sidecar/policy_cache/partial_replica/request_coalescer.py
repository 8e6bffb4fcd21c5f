"""Coalesces the lookups of several callers: one of them reads for all. Knows neither the names nor
how they are read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from sidecar.policy_cache.feed import FeedFailed
from sidecar.policy_cache.partial_replica.redis_reader import TornRead

MAX_WAITING = 256
"""Callers that may wait at a time; one more is refused at once."""
MAX_NAMES = 400
"""The most names in one combined read."""


@dataclass(slots=True, eq=False)
class _Lookup:
    """One caller's names, and the outcome. `alone` means that a combined read met a torn document,
    so this caller reads by itself."""

    names: frozenset[str]
    done: bool = False
    alone: bool = False
    failure: FeedFailed | None = None


class RequestCoalescer:
    """Calls `read` with the names of all who wait, while holding `lock`; `read` raises
    `FeedFailed`."""

    def __init__(self, lock: asyncio.Lock, read: Callable[[set[str]], Awaitable[None]]) -> None:
        self._lock = lock
        self._read = read
        self._waiting: dict[_Lookup, None] = {}

    async def fetch(self, names: Iterable[str]) -> None:
        """Return once the names were read, by us or by another caller."""
        # An attacker who tries API keys causes a lookup with each: they must not fill the memory.
        if len(self._waiting) >= MAX_WAITING:
            raise FeedFailed("too many lookups of policy documents are waiting")
        lookup = _Lookup(frozenset(names))
        self._waiting[lookup] = None
        try:
            async with self._lock:
                # The caller that had the lock before us may have read for us too.
                if not lookup.done and lookup.failure is None:
                    await self._read_for_all(lookup)
        finally:
            del self._waiting[lookup]
        # A new exception for each: one instance raised in several tasks would mix up tracebacks.
        if lookup.failure is not None:
            raise FeedFailed(str(lookup.failure)) from lookup.failure

    async def _read_for_all(self, lookup: _Lookup) -> None:
        """Read for all who wait. If we are cancelled, the next caller takes them all again."""
        group, names = self._group(lookup)
        try:
            await self._read(names)
        except TornRead:
            if len(group) == 1:
                raise
            # One document is missing or damaged. It must fail only the callers who asked for it.
            for each in group:
                each.alone = True
            await self._read(set(lookup.names))
        except FeedFailed as error:
            # The source itself failed, so a read for each caller alone would fail too.
            for each in group:
                each.failure = error
        else:
            for each in group:
                each.done = True

    def _group(self, lookup: _Lookup) -> tuple[list[_Lookup], set[str]]:
        """The callers to read for, `lookup` among them, and all their names."""
        group, names = [lookup], set(lookup.names)
        for each in () if lookup.alone else self._waiting:
            if each is lookup or each.alone or each.done or each.failure is not None:
                continue
            if len(names) + len(each.names) > MAX_NAMES:
                break  # not `continue`: callers are served in order
            group.append(each)
            names |= each.names
        return group, names
