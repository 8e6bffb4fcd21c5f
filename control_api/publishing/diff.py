"""Finds the fields to write so that a policy set in Redis equals the store's, by comparing the two
Merkle trees from the root down. The cost grows with the difference, not with the size of the set.

Trusts nothing that Redis says, but keeps what is right. Below a node that is right, everything is
assumed to be right too; a sidecar that finds otherwise reports it (`repair_requests.py`).
"""

import sys
from collections.abc import AsyncGenerator, Iterable, Sequence

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.publishing.redis_sets import RedisSets
from control_api.store import set_nodes
from control_api.store.queries import documents
from policies.sets.merkle_map import EMPTY, EMPTY_ROOT, FANOUT, ROOT, node_digest
from policies.sets.redis_keys import document_field, node_field
from policies.sets.signed_head import MAX_CHANGED_NAMES

BULK_DOCUMENT_BYTES = 16 * 1024
"""Documents up to this size are read many at a time, larger ones one at a time."""
Field = tuple[bytes, bytes | None]


class Difference:
    """One tenant's set compared with the store, in one database snapshot.

    Once `fields` is exhausted, `names` holds the documents that differ. Unless `all_names`, no more
    are collected beyond `MAX_CHANGED_NAMES`, so any document may differ. `proven` says whether the
    names are certain: every node read from Redis leads from `root`, the digest that the head in
    Redis signs.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        sets: RedisSets,
        tenant_id: str,
        root: str | None,
        *,
        all_names: bool,
    ) -> None:
        self.names: set[str] = set()
        self.proven = root is not None
        self._connection = connection
        self._sets = sets
        self._tenant_id = tenant_id
        self._root = root
        self._max_names = sys.maxsize if all_names else MAX_CHANGED_NAMES

    async def fields(self, stored: bytes, held: bytes | None) -> AsyncGenerator[Field, None]:
        """The fields to write; None removes one. Documents come before their buckets, buckets
        before their branches, and the root last. `stored` and `held` are the roots' bodies."""
        if stored == held and _proven(held, self._root):
            return
        ours = _children(stored)
        theirs = self._read(held, self._root)
        names = [f"{at:02x}" for at in range(FANOUT) if ours[at] != theirs[at]]
        branches = await self._nodes(names)
        held_branches = await self._held(names)
        for name in names:
            body = branches.get(name)
            async for field in self._branch(name, body, held_branches[name], theirs[int(name, 16)]):
                yield field
            yield node_field(name), body
        yield node_field(ROOT), stored

    async def _branch(
        self, branch: str, stored: bytes | None, held: bytes | None, digest: str | None
    ) -> AsyncGenerator[Field, None]:
        ours, theirs = _children(stored), self._read(held, digest)
        indexes = [at for at in range(FANOUT) if ours[at] != theirs[at]]
        names = [f"{branch}.{at:02x}" for at in indexes]
        buckets = await self._nodes(names)
        held_buckets = await self._held(names)
        changed: dict[str, bool] = {}
        for name, at in zip(names, indexes, strict=True):
            body = held_buckets[name]
            if not _proven(body, theirs[at]):
                self.proven = False
            changed |= _changed(buckets.get(name), body)
            if self.proven and len(self.names) <= self._max_names:
                # An unfinished rebuild may have left nodes that the head does not cover. Readers of
                # the head have not seen them, so they count as changed.
                signed = None if theirs[at] == EMPTY else body
                self.names.update(_changed(buckets.get(name), signed))
        # Write documents before the nodes that list them (see the INVARIANT of `redis_sets`). The
        # store streams them, so that a set of any size needs little memory.
        stored_here = [name for name, in_store in changed.items() if in_store]
        async for name, document in documents.bodies(
            self._connection, self._tenant_id, stored_here, small=BULK_DOCUMENT_BYTES
        ):
            yield document_field(name), document
        for name, in_store in changed.items():
            if not in_store:
                yield document_field(name), None
        for name in names:
            yield node_field(name), buckets.get(name)

    async def _nodes(self, names: Sequence[str]) -> dict[str, bytes]:
        return await set_nodes.fetch(self._connection, self._tenant_id, names)

    async def _held(self, names: Sequence[str]) -> dict[str, bytes | None]:
        found = await self._sets.fields(self._tenant_id, [node_field(name) for name in names])
        return dict(zip(names, found, strict=True))

    def _read(self, body: bytes | None, digest: str | None) -> list[str | None]:
        """The children's digests according to Redis; None for an unknown one."""
        if digest == EMPTY:
            return [EMPTY] * FANOUT
        if not _proven(body, digest):
            self.proven = False
        found = _json_list(body)
        if len(found) != FANOUT:  # anyone who can reach Redis may have written it
            return [None] * FANOUT
        return [child if isinstance(child, str) else None for child in found]


def _proven(body: bytes | None, digest: str | None) -> bool:
    """Whether a node that Redis holds has the digest that its parent lists."""
    if digest == EMPTY:
        return True
    return body is not None and digest is not None and node_digest(body) == digest


def _children(stored: bytes | None) -> list[str]:
    return list(orjson.loads(EMPTY_ROOT if stored is None else stored))


def _changed(stored: bytes | None, held: bytes | None) -> dict[str, bool]:
    """The documents in which two buckets differ, each with whether the store has it."""
    if stored == held:
        return {}
    ours = dict(orjson.loads(stored)) if stored is not None else {}
    # `held` may have any form: anyone who can reach Redis may have written it.
    theirs = dict(_pairs(_json_list(held)))
    changed = {name: True for name, digest in ours.items() if theirs.get(name) != digest}
    return changed | {name: False for name in theirs if name not in ours}


def _json_list(body: bytes | None) -> list[object]:
    try:
        found = orjson.loads(body or b"[]")
    except orjson.JSONDecodeError:
        return []
    return found if isinstance(found, list) else []


def _pairs(entries: Iterable[object]) -> Iterable[tuple[str, str]]:
    for entry in entries:
        match entry:
            case [str(name), str(digest)]:
                yield name, digest
