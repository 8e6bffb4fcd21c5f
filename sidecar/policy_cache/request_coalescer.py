"""What several callers ask for at once, read by one of them for all. Knows neither the names nor
how they are read.

Whoever tries API keys asks for a document with each. Read one after the other, they would keep the
one loop waiting that shares the turn with them: the one by which a revocation comes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from sidecar.policy_cache.feed import FeedFailed
from sidecar.policy_cache.redis_reader import TornRead

MOST_WAITING = 256
"""Callers that wait at a time; one more is refused at once."""
MOST_NAMES = 400
"""Names of a read that is made for several."""


class _Asked:
    """One caller's names, and what became of them."""

    __slots__ = ("alone", "done", "failure", "names")

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.done = False
        self.alone = False
        self.failure: FeedFailed | None = None


class RequestCoalescer:
    """`read` is called with names while `turn` is held, and raises `FeedFailed`."""

    def __init__(self, turn: asyncio.Lock, read: Callable[[set[str]], Awaitable[None]]) -> None:
        self._turn = turn
        self._read = read
        self._waiting: dict[_Asked, None] = {}

    async def bring(self, names: Iterable[str]) -> None:
        """Returns once the names were read, by us or by another who found us waiting."""
        if len(self._waiting) >= MOST_WAITING:
            raise FeedFailed("too many documents are asked for at once")
        asked = _Asked(frozenset(names))
        self._waiting[asked] = None
        try:
            async with self._turn:
                if not asked.done and asked.failure is None:
                    await self._bring_all(asked)
        finally:
            del self._waiting[asked]
        if asked.failure is not None:
            raise FeedFailed(str(asked.failure)) from asked.failure

    async def _bring_all(self, asked: _Asked) -> None:
        """If we are cancelled on the way, the next takes them all again."""
        together, names = self._company(asked)
        try:
            await self._read(names)
        except TornRead:
            if len(together) == 1:
                raise
            # Something of somebody's is missing or wrong: nobody is to suffer for another's.
            for each in together:
                each.alone = True
            await self._read(set(asked.names))
        except FeedFailed as error:
            for each in together:
                each.failure = error
        else:
            for each in together:
                each.done = True

    def _company(self, asked: _Asked) -> tuple[list[_Asked], set[str]]:
        """Who is read for, `asked` among them, and all their names."""
        together, names = [asked], set(asked.names)
        for each in () if asked.alone else self._waiting:
            if each is asked or each.alone or each.done or each.failure is not None:
                continue
            if len(names) + len(each.names) > MOST_NAMES:
                break
            together.append(each)
            names |= each.names
        return together, names
