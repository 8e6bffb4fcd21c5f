"""Brings the working set to the revision of the policy set in Redis. Reads the documents that
changed, and any others that are needed, under one head, and puts them in force together. If the
heads leave a gap, it compares all documents that are held with the set in Redis."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from policies.sets.signed_head import SetHead
from sidecar.policy_cache.feed import FeedFailed, Position
from sidecar.policy_cache.partial_replica.redis_reader import RedisReader
from sidecar.policy_cache.partial_replica.working_set import ABSENT, HeldDocument, PartialState

MAX_TRIES = 8
CHUNK = 400
"""The most documents read from Redis at once."""


class SetMoved(Exception):
    """the set changed during the read"""


class IncrementalSync:
    """Applies the changes in Redis to the working set, one at a time. `source` is the reader to
    use; it is None until the tenant is known. `on_put_in_force` is called in the same step of the
    event loop as each change, with the position before the change and the names that changed (None
    if any may have changed)."""

    def __init__(
        self, state: PartialState, on_put_in_force: Callable[[Position, set[str] | None], None]
    ) -> None:
        self.source: RedisReader | None = None
        self._state = state
        self._working_set = state.working_set
        self._required = state.required
        self._on_put_in_force = on_put_in_force
        self._lock = asyncio.Lock()

    async def advance(self, heads: Sequence[SetHead] = (), *, required: bool = False) -> None:
        """Advance the working set to the head in Redis. `heads` are the heads that the stream has
        brought. With `required`, also fetch the required documents that are not held yet. Raises
        `FeedFailed`."""
        async with self._lock:
            wanted = set(self._required if required else ())
            await self._advance(self._source(), wanted, list(heads))

    def lacks_required(self) -> bool:
        return len(self._working_set.digests(self._required)) < len(self._required)

    async def fetch(self, names: Iterable[str]) -> None:
        async with self._lock:
            await self._advance(self._source(), set(names), [])

    def _source(self) -> RedisReader:
        if self.source is None:
            raise FeedFailed("the tenant is not known yet")
        return self.source

    async def _advance(self, source: RedisReader, wanted: set[str], heads: list[SetHead]) -> None:
        await source.find_stream_end()
        for _ in range(MAX_TRIES):
            position = self._working_set.position
            changed, reached = _covered(position, heads)
            # Read the held documents that changed, and those that the caller wants. Without a list
            # of changes, read all that are held: their digests show which ones differ.
            relevant = None if changed is None else sorted(changed | wanted)
            known = self._working_set.digests(relevant)
            names = sorted(wanted.union(known if changed is None else known.keys() & changed))
            try:
                head, found = await self._read(source, names, known)
                if head.epoch != position.epoch:
                    # Another store: the documents held say nothing about it. Besides the wanted
                    # ones, fetch only those that every decision needs.
                    names = sorted(wanted.union(self._required))
                    head, found = await self._read(source, names, {})
            except SetMoved:
                continue
            if head.epoch == position.epoch:
                # Redis was restored from a backup, or fell back to a replica that lags behind.
                # Without this check, a revoked key could become valid again.
                if head.revision < position.revision:
                    seen = f"`{position.revision}`, which was already seen"
                    raise FeedFailed(f"policy set `{head.revision}` in Redis is older than {seen}")
                if head.revision > reached:
                    more = await source.more_heads()
                    # No more heads: the stream was trimmed or lost. As if one unknown change led
                    # here, compare everything held.
                    tenant, since = head.tenant_id, position.revision
                    gap = SetHead(tenant, head.epoch, since, head.revision, head.root, None)
                    heads = heads + more if more else [gap]
                # The heads end before or after the one read, so these may be the wrong names.
                if head.revision != reached:
                    continue
            # Answers of the control API go straight to `put_in_force`, so the position may have
            # changed while we read.
            if self._working_set.position != position:
                continue
            self.put_in_force(Position(head.epoch, head.revision), found, changed)
            return
        raise FeedFailed("the policy set in Redis changes faster than it can be read")

    async def _read(
        self, source: RedisReader, names: Sequence[str], known: Mapping[str, str]
    ) -> tuple[SetHead, dict[str, HeldDocument]]:
        """Read the documents with these names, except those whose digest is in `known`, all under
        one head. Raises `SetMoved` if the head changes between two chunks."""
        heads: set[SetHead] = set()
        found: dict[str, HeldDocument] = {}
        if len(names) > CHUNK:
            # Of so many documents, few have changed: find those first, and read only their bodies.
            differing: list[str] = []
            for at in range(0, len(names), CHUNK):
                chunk = names[at : at + CHUNK]
                head, part = await source.read(chunk, known, bodies=False)
                heads.add(head)
                differing += [name for name in chunk if part.get(name, ABSENT) is not None]
            names = differing
        # At least one read: without names, it still returns the head.
        for at in range(0, max(1, len(names)), CHUNK):
            head, part = await source.read(names[at : at + CHUNK], known)
            heads.add(head)
            found |= {name: each for name, each in part.items() if each is not None}
        # Chunks of different revisions must never be put in force together.
        if len(heads) != 1:
            raise SetMoved
        return heads.pop(), found

    def put_in_force(
        self,
        position: Position,
        found: Mapping[str, HeldDocument],
        changed: set[str] | None,
        *,
        alone: bool = False,
    ) -> None:
        """Put verified documents in force at `position`. `changed` are the names that changed since
        the position held before, None if any may have changed. `alone` is passed to
        `WorkingSet.put_in_force`."""
        former = self._working_set.position
        if position == former and not found:
            return
        self._working_set.put_in_force(position, found, alone=alone)
        if former.epoch != position.epoch:
            changed = None
        self._state.apply(changed, position.revision)
        self._on_put_in_force(former, changed)


def _covered(position: Position, heads: Iterable[SetHead]) -> tuple[set[str] | None, int]:
    """Return the names that changed since `position`, and the revision reached, by following the
    heads for as long as they continue it without a gap. The names are None if any may have
    changed."""
    changed: set[str] | None = set()
    reached = position.revision
    for head in heads:
        # Already known: a read of the set was ahead of the stream.
        if head.epoch != position.epoch or head.revision <= reached:
            continue
        # A gap: what changed in it is unknown.
        if head.since > reached:
            break
        changed = None if changed is None or head.names is None else changed | set(head.names)
        reached = head.revision
    return changed, reached
