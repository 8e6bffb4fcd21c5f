"""The working set brought to where the policy set in Redis stands: what changed is read under one
head, with what else is wanted, and put in force at once. Where the heads do not tell what lies
between, everything that is held is compared.

Knows what to read and what of it to believe. Knows neither commands nor when to look.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from policies.sets.policy_set import PolicySet
from policies.sets.signed_head import SetHead
from sidecar.policy_cache.feed import FeedFailed, Position
from sidecar.policy_cache.redis_reader import RedisReader
from sidecar.policy_cache.working_set import ABSENT, Proven, WorkingSet

TRIES = 8
CHUNK = 400
"""Documents that are read at once."""


class SetMoved(Exception):
    """the set changed while it was read"""


class IncrementalSync:
    """One at a time. `source` is what is read, None while it is not known whose set it is. `kept`
    are names that are always wanted; `on_put` is called, in the same step of the event loop, where
    anything was put in force: with the position before, and the names that changed, None for any.

    What the control API itself answers goes past Redis, straight to `put_in_force`: between two
    reads of Redis the position may have moved on.
    """

    def __init__(
        self,
        working_set: WorkingSet,
        policy_set: PolicySet,
        kept: Sequence[str],
        on_put: Callable[[Position, set[str] | None], None],
    ) -> None:
        self.source: RedisReader | None = None
        self._held = working_set
        self._policy_set = policy_set
        self._kept = tuple(kept)
        self._on_put = on_put
        self._turn = asyncio.Lock()

    async def sync(self, heads: Sequence[SetHead] = (), *, kept: bool = False) -> None:
        """Bring the working set to the head in Redis; `heads` are what the stream told, `kept`
        whether one of those names may be lacking. Raises `FeedFailed`."""
        async with self._turn:
            await self._bring_up(self._known(), set(self._kept if kept else ()), list(heads))

    def lacks_kept(self) -> bool:
        return len(self._held.held(self._kept)) < len(self._kept)

    async def bring(self, names: Iterable[str]) -> None:
        """The same, with these names in it."""
        async with self._turn:
            await self._bring_up(self._known(), set(names), [])

    def _known(self) -> RedisReader:
        if self.source is None:
            raise FeedFailed("it is not known yet whose policy set to read")
        return self.source

    async def _bring_up(self, source: RedisReader, wanted: set[str], heads: list[SetHead]) -> None:
        await source.find_place()
        for _ in range(TRIES):
            position = self._held.position
            changed, reached = _walked(position, heads)
            known = self._held.held(None if changed is None else sorted(changed | wanted))
            names = sorted(wanted.union(known if changed is None else known.keys() & changed))
            try:
                head, proven = await self._read(source, names, known)
                if head.epoch != position.epoch:
                    # Another store: nothing that is held says anything of it.
                    names = sorted(wanted.union(self._kept))
                    head, proven = await self._read(source, names, {})
            except SetMoved:
                continue
            if head.epoch == position.epoch:
                if head.revision < position.revision:
                    raise FeedFailed(
                        f"Redis has policy set `{head.revision}`, and `{position.revision}` was "
                        "seen already"
                    )
                if head.revision > reached:
                    more = await source.more_heads()
                    # Where nothing tells what lies between, all that is held is compared.
                    heads = heads + more if more else [_any(head, position)]
                if head.revision != reached:
                    continue
            if self._held.position != position:
                continue  # the control API's own answer was faster
            self.put_in_force(Position(head.epoch, head.revision), proven, changed)
            return
        raise FeedFailed("the policy set in Redis changes faster than it can be read")

    async def _read(
        self, source: RedisReader, names: Sequence[str], known: Mapping[str, str]
    ) -> tuple[SetHead, dict[str, Proven]]:
        """What is not `known` of these names already, all of it under one head; else `SetMoved`."""
        heads: set[SetHead] = set()
        proven: dict[str, Proven] = {}
        if len(names) > CHUNK:
            # So many are compared, hardly changed: bodies are read of those alone that differ.
            names = [name async for name in self._differing(source, names, known, heads)]
        for at in range(0, max(1, len(names)), CHUNK):
            head, part = await source.read(names[at : at + CHUNK], known)
            heads.add(head)
            proven |= {name: each for name, each in part.items() if each is not None}
        if len(heads) != 1:
            raise SetMoved
        return heads.pop(), proven

    async def _differing(
        self,
        source: RedisReader,
        names: Sequence[str],
        known: Mapping[str, str],
        heads: set[SetHead],
    ) -> AsyncIterator[str]:
        for at in range(0, len(names), CHUNK):
            chunk = names[at : at + CHUNK]
            head, part = await source.read(chunk, known, bodies=False)
            heads.add(head)
            for name in chunk:
                if part.get(name, ABSENT) is not None:
                    yield name

    def put_in_force(
        self,
        position: Position,
        proven: Mapping[str, Proven],
        changed: set[str] | None,
        *,
        alone: bool = False,
    ) -> None:
        """What was read, believed, and follows what is held. `changed` are the names that changed
        since, None for any; `alone` as in `WorkingSet.put_in_force`."""
        former = self._held.position
        if position == former and not proven:
            return
        self._held.put_in_force(position, proven, alone=alone)
        # No `await` before the end: no decision sees new documents under an old revision.
        if former.epoch != position.epoch:
            changed = None
        if changed is None:
            self._policy_set.reset(position.revision)
        else:
            self._policy_set.apply(changed, position.revision)
        self._on_put(former, changed)


def _any(head: SetHead, position: Position) -> SetHead:
    """As if one change had led from `position` to `head`, of which nobody knows what it changed."""
    return SetHead(head.tenant_id, head.epoch, position.revision, head.revision, head.root, None)


def _walked(position: Position, heads: Iterable[SetHead]) -> tuple[set[str] | None, int]:
    """What changed from `position` on as far as the heads tell without a gap, None for any; and the
    revision that they reach."""
    changed: set[str] | None = set()
    reached = position.revision
    for head in heads:
        if head.epoch != position.epoch or head.revision <= reached:
            continue
        if head.since > reached:
            break
        changed = None if changed is None or head.names is None else changed | set(head.names)
        reached = head.revision
    return changed, reached
