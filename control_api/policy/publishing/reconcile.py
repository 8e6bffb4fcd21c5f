"""Makes a policy set in Redis equal to the store's, whatever Redis holds now: compares the two hash
trees, and writes the fields that differ. The cost grows with the difference alone.

    read Redis > open a snapshot of the store > compare > write by compare-and-set

If the store was restored to an older state, the tenant is recovered from that first
(`control_api.rollback_recovery`).

A small change is written in one step with the head. A set that must be rebuilt is written in
pieces, with the head last: until then a reader finds no head, or lacks its nodes, and waits.

Nothing that Redis says is trusted. If a node is right, everything below it is assumed to be right;
a sidecar that finds otherwise reports it (`suspect_fields` of `heartbeats.py`).
"""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.metrics.labels import Pushing
from control_api.policy.publishing.redis_sets import (
    NO_SET,
    Batches,
    HeldSet,
    RedisSets,
    SetChanged,
    SetLocked,
    SetSigner,
)
from control_api.store import set_nodes
from control_api.store.queries import documents, log_keys, tenant_rows
from control_api.store.store import Store
from policies.ground.errors import Unavailable
from policies.sets.merkle_map import EMPTY, EMPTY_ROOT, FANOUT, ROOT, node_digest, nodes_of
from policies.sets.redis_keys import HEAD, HISTORY, document_field, node_field
from policies.sets.signed_head import MAX_CHANGED_NAMES, SetHead

BULK_DOCUMENT_BYTES = 16 * 1024
"""The size in bytes up to which documents are read many at a time. Larger ones are read one at a
time."""
Field = tuple[bytes, bytes | None]


class Difference:
    """Compares one tenant's set in Redis with the store, in one database snapshot.

    Once `fields` is exhausted, `names` holds the names of the documents that differ. Unless
    `all_names` is set, names beyond `MAX_CHANGED_NAMES` are not collected: then any document may
    differ. `proven` is True if the names are certain: every node read from Redis leads from `root`,
    the digest that the head in Redis signs.
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
        self._connection, self._sets = connection, sets
        self._tenant_id, self._root = tenant_id, root
        self._max_names = sys.maxsize if all_names else MAX_CHANGED_NAMES

    async def fields(self, stored: bytes, held: bytes | None) -> AsyncGenerator[Field, None]:
        """Yield the fields to write, each with its value; None means to remove the field. Documents
        come before their buckets, buckets before their branches, and the root last. `stored` and
        `held` are the bodies of the root node in the store and in Redis."""
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
        """Return the digests of a node's children, as Redis states them; None for one that it does
        not state. Clears `proven` if the node does not have the digest that its parent lists."""
        if digest == EMPTY:
            return [EMPTY] * FANOUT
        if not _proven(body, digest):
            self.proven = False
        found = _json_list(body)
        if len(found) != FANOUT:  # anyone who can reach Redis may have written it
            return [None] * FANOUT
        return [child if isinstance(child, str) else None for child in found]


def _proven(body: bytes | None, digest: str | None) -> bool:
    """Return whether a node that Redis holds has the digest that its parent lists."""
    if digest == EMPTY:
        return True
    return body is not None and digest is not None and node_digest(body) == digest


def _children(stored: bytes | None) -> list[str]:
    return list(orjson.loads(EMPTY_ROOT if stored is None else stored))


def _changed(stored: bytes | None, held: bytes | None) -> dict[str, bool]:
    """Return the names of the documents in which two buckets differ. The value is True if the store
    has the document."""
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


class UnknownLoss(Unavailable):
    """the store was restored to an older state, and what it lost can't be determined"""


Resume = Callable[[str, int, Iterable[str]], Awaitable[None]]


class Reconciler:
    """Reconciles tenants' sets in Redis with the store. `token()` makes a fresh lock token for each
    attempt. If the store was restored to an older state, `resume` is called with the tenant, the
    newest signed revision, and the names of the documents in which that revision and the store
    differ."""

    def __init__(
        self,
        store: Store,
        sets: RedisSets,
        signer: SetSigner,
        token: Callable[[], str],
        resume: Resume,
    ) -> None:
        self._store, self._sets, self._signer = store, sets, signer
        self._token, self._resume = token, resume

    async def reconcile(self, tenant_id: str, suspect: Collection[bytes]) -> Pushing:
        """Reconcile one tenant's set. `suspect` holds fields that sidecars report as wrong. Raise
        `SetChanged` if the set or the store has changed since it was read; the caller then tries
        again."""
        # Read Redis before the store's snapshot opens. Only committed changes reach Redis, so the
        # set can't be ahead of the snapshot, unless the store was restored to an older state.
        held = await self._sets.held(tenant_id)
        if self._signer.owns(held):
            return await self._update(tenant_id, held, "", suspect)
        # The set comes from another store, or names none. A comparison of the trees would never
        # look at its leftover fields, so remove the set first.
        token = self._token()
        # The lock is held until the new head is written, so only one replica rebuilds the set.
        if not await self._sets.lock(tenant_id, token):
            raise SetLocked
        try:
            if not await self._sets.clear(tenant_id, held.at):
                raise SetChanged
            return await self._update(tenant_id, NO_SET, token, suspect)
        finally:
            await self._sets.unlock(tenant_id, token)

    async def _update(
        self, tenant_id: str, held: HeldSet, token: str, suspect: Collection[bytes]
    ) -> Pushing:
        seen = _SeenSet(tenant_id, held, await self._head(tenant_id, held.head))
        async with self._store.snapshot(tenant_id) as connection:
            states = await tenant_rows.states(connection, [tenant_id])
            if tenant_id not in states:
                return Pushing.current
            revision, _ = states[tenant_id]
            batches = Batches(self._sets, tenant_id, held.at, self._token, token)
            update = _Update(self._sets, self._signer, connection, batches, seen, revision)
            try:
                if update.lost is None:
                    return await update.run(suspect)
                lost, names = update.lost, await update.differing()
            finally:
                await batches.close()
        # This writes to the store, so it runs outside the snapshot.
        await self._resume(tenant_id, lost, names)
        raise SetChanged  # start over from the store's new state

    async def _head(self, tenant_id: str, sealed: bytes | None) -> SetHead | None:
        """Return the verified head of the set in Redis, or None if it was not signed by one of the
        log's keys."""
        if sealed is None:
            return None
        head = self._signer.open_head(tenant_id, sealed, self._signer.ring.trusted())
        if head is None:
            # During a key rotation another replica may already sign with a newer key. The store
            # lists that key.
            publics = await log_keys.trusted(self._store, self._signer.ring)
            head = self._signer.open_head(tenant_id, sealed, publics)
        return head


@dataclass(frozen=True, slots=True)
class _SeenSet:
    """One tenant's set as read from Redis. `head` is the verified head, or None if it was not
    signed by one of the log's keys."""

    tenant_id: str
    held: HeldSet
    head: SetHead | None


class _Update:
    """An update of one tenant's set to the store's state, within one snapshot of the store.
    `revision` is the tenant's revision in that snapshot."""

    def __init__(
        self,
        sets: RedisSets,
        signer: SetSigner,
        connection: AsyncConnection,
        batches: Batches,
        seen: _SeenSet,
        revision: int,
    ) -> None:
        self._sets, self._signer, self._connection = sets, signer, connection
        self._batches, self._revision = batches, revision
        self._tenant_id, self._held, self._head = seen.tenant_id, seen.held, seen.head
        root = None if seen.head is None else seen.head.root
        ahead = seen.head is not None and seen.head.revision > revision
        self.lost = seen.head.revision if ahead and seen.head is not None else None
        """The newest revision that was signed, if the store was restored to an older one, otherwise
        None."""
        # Of a loss, every name counts: a revoked key that is left out would be valid again.
        self._difference = Difference(connection, sets, self._tenant_id, root, all_names=ahead)

    async def differing(self) -> set[str]:
        """Return the names of the documents in which the signed set and the store differ. Raise
        `UnknownLoss` if the set in Redis is too damaged to tell."""
        async with aclosing(self._difference.fields(await self._root(), self._held.root)) as fields:
            async for _ in fields:
                pass
        # INVARIANT: only a proven difference decides which documents are put out of force. If the
        # document of a revoked key were left out, the key would be valid again.
        if not self._difference.proven:
            raise UnknownLoss(
                f"tenant `{self._tenant_id}`: the store was restored to revision "
                f"`{self._revision}`, and what was signed up to revision `{self.lost}` can't be "
                "read from Redis"
            )
        return self._difference.names

    async def run(self, suspect: Collection[bytes]) -> Pushing:
        root = await self._root()
        async with aclosing(self._difference.fields(root, self._held.root)) as fields:
            async for field, body in fields:
                await self._batches.add(field, body)
        for field, body in await self._wrong_fields(suspect):
            await self._batches.add(field, body)
        digest = node_digest(root)
        return await self._finish(digest, self._head_is_current(digest, HEAD in suspect))

    async def _root(self) -> bytes:
        nodes = await set_nodes.fetch(self._connection, self._tenant_id, [ROOT])
        return nodes.get(ROOT, EMPTY_ROOT)

    async def _finish(self, root: str, keep_head: bool) -> Pushing:
        if keep_head and not self._batches.fields:
            return Pushing.current
        at = head = b""
        if not keep_head:
            # The endorsements go with the head: a reader that knows an older key needs them.
            self._batches.fields[HISTORY] = self._signer.history
            at, head = self._signer.at(self._revision), self._new_head(root)
        await self._batches.finish(at, head)
        return Pushing.mended if self._head is not None else Pushing.rebuilt

    def _head_is_current(self, root: str, suspect: bool) -> bool:
        """Return whether the head in Redis can stay. Usually it may be signed by any of the log's
        keys; but if a sidecar reports that it can't verify the head (`suspect`), only by this
        process's key."""
        head, held = self._head, self._held
        if head is None or (head.revision, head.root) != (self._revision, root):
            return False
        if held.at != self._signer.at(self._revision):
            return False
        if self._signer.signed_by_us(self._tenant_id, held.head):
            return held.history == self._signer.history
        return not suspect

    def _new_head(self, root: str) -> bytes:
        before, difference = self._head, self._difference
        # Without the changed names a sidecar has to compare the whole set. Incomplete names would
        # be worse: it would keep a document that has changed.
        since, names = 0, None
        if before is not None and before.revision <= self._revision:
            since = before.revision
            if difference.proven and len(difference.names) <= MAX_CHANGED_NAMES:
                names = tuple(sorted(difference.names))
        head = SetHead(self._tenant_id, self._signer.epoch, since, self._revision, root, names)
        return head.sealed(self._signer.ring.signer)

    async def _wrong_fields(self, suspect: Collection[bytes]) -> list[tuple[bytes, bytes | None]]:
        """Compare the suspect fields, and the nodes that prove them, with the store. Return those
        that differ, with their right values (None means to remove the field)."""
        names = [field[2:].decode() for field in suspect if field.startswith(b"d/")]
        nodes = {field[2:].decode() for field in suspect if field.startswith(b"n/")}
        if not names and not nodes:
            return []
        nodes |= nodes_of(names)
        right: dict[bytes, bytes | None] = dict.fromkeys(map(document_field, names))
        async for name, body in documents.bodies(
            self._connection, self._tenant_id, names, small=BULK_DOCUMENT_BYTES
        ):
            right[document_field(name)] = body
        found = await set_nodes.fetch(self._connection, self._tenant_id, sorted(nodes))
        right |= {node_field(node): found.get(node) for node in sorted(nodes)}
        held = await self._sets.fields(self._tenant_id, list(right))
        # A sidecar may be wrong, or may lie: write only what really differs.
        return [field for field, body in zip(right.items(), held, strict=True) if field[1] != body]
