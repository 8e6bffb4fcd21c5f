"""Makes a policy set in Redis equal to the store's, whatever it holds now. Decides not when.

    read Redis > open a snapshot of the store > compare > write by compare-and-set

The order matters: only commits reach Redis, so a set that is read before the store can't be ahead
of it, unless the store was restored to an older state. Then that is repaired first
(`control_api.maintenance.rollback_recovery`).

A change that fits goes in one step with the head, so a reader sees the set before it or after it. A
set that must be rebuilt goes in pieces, and the head last: until then a reader finds no head, or a
head whose nodes are missing, and waits.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import aclosing

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.metrics.labels import Pushing
from control_api.publishing.batch import Batches, SetChanged, SetLocked
from control_api.publishing.diff import BULK_DOCUMENT_BYTES, Difference
from control_api.publishing.redis_sets import HeldSet, RedisSets
from control_api.publishing.set_signer import SetSigner
from control_api.store import set_nodes
from control_api.store.queries import documents, log_keys, tenants
from control_api.store.store import Store
from policies.ground.errors import Unavailable
from policies.sets.merkle_map import EMPTY_ROOT, ROOT, node_digest, nodes_of
from policies.sets.redis_keys import HEAD, HISTORY, document_field, node_field
from policies.sets.signed_head import MAX_CHANGED_NAMES, SetHead


class UnknownLoss(Unavailable):
    """the store was restored to an older state, and what it lost can't be determined"""


Resume = Callable[[str, int, Iterable[str]], Awaitable[None]]


class Reconciler:
    """`token()` makes a fresh lock token for each attempt. If the store was restored to an older
    state, `resume` is called with the newest signed revision and the names of the documents that
    differed then."""

    def __init__(
        self,
        store: Store,
        sets: RedisSets,
        signer: SetSigner,
        token: Callable[[], str],
        resume: Resume,
    ) -> None:
        self._resume = resume
        self._store = store
        self._sets = sets
        self._signer = signer
        self._token = token

    async def reconcile(self, tenant_id: str, suspect: Collection[bytes]) -> Pushing:
        """Reconcile one tenant's set. `suspect` are fields that sidecars report as wrong. Raises
        `SetChanged` if the set changed meanwhile: try again."""
        held = await self._sets.held(tenant_id)
        if self._signer.owns(held):
            return await self._look(tenant_id, held, "", suspect)
        # From another store, or without an origin. Comparing trees would never look at the leftover
        # fields, so the set is removed first.
        token = self._token()
        if not await self._sets.lock(tenant_id, token):
            raise SetLocked
        try:
            if not await self._sets.clear(tenant_id, held.at):
                raise SetChanged
            return await self._look(tenant_id, HeldSet(None, None, None, None), token, suspect)
        finally:
            await self._sets.unlock(tenant_id, token)

    async def _look(
        self, tenant_id: str, held: HeldSet, token: str, suspect: Collection[bytes]
    ) -> Pushing:
        head = await self._head(tenant_id, held.head)
        async with self._store.snapshot(tenant_id) as connection:
            standing = await tenants.states(connection, [tenant_id])
            if tenant_id not in standing:
                return Pushing.current
            revision, _ = standing[tenant_id]
            batches = Batches(self._sets, tenant_id, held.at, self._token, token)
            work = _Reconciliation(self, connection, batches, tenant_id, held, head, revision)
            try:
                if work.lost is None:
                    return await work.run(suspect)
                lost, names = work.lost, await work.differing()
            finally:
                await batches.close()
        await self._resume(tenant_id, lost, names)
        raise SetChanged  # `resume` changed the store: start over from its new state

    async def _head(self, tenant_id: str, sealed: bytes | None) -> SetHead | None:
        """The head in Redis; None if no key of the log signed it."""
        if sealed is None:
            return None
        head = self._signer.open_head(tenant_id, sealed, self._signer.ring.trusted())
        if head is None:
            # During a rotation another replica may already sign with a newer key, which the store
            # lists.
            publics = await log_keys.trusted(self._store, self._signer.ring)
            head = self._signer.open_head(tenant_id, sealed, publics)
        return head


class _Reconciliation:
    """The work on one tenant, within one snapshot of the store."""

    def __init__(
        self,
        reconciler: Reconciler,
        connection: AsyncConnection,
        batches: Batches,
        tenant_id: str,
        held: HeldSet,
        head: SetHead | None,
        revision: int,
    ) -> None:
        self._sets, self._signer = reconciler._sets, reconciler._signer
        self._connection = connection
        self._batches = batches
        self._tenant_id = tenant_id
        self._held = held
        self._revision = revision
        self._head = head
        ahead = head is not None and head.revision > revision
        self.lost = head.revision if ahead and head is not None else None
        """The newest signed revision, if the store has lost it; otherwise None."""

    async def differing(self) -> set[str]:
        """The documents in which the signed set and the store differ. Raises `UnknownLoss` if the
        set in Redis is too damaged to tell."""
        nodes = await set_nodes.fetch(self._connection, self._tenant_id, [ROOT])
        known = None if self._head is None else self._head.root
        difference = Difference(self._connection, self._sets, self._tenant_id, known)
        fields = difference.fields(nodes.get(ROOT, EMPTY_ROOT), self._held.root)
        async with aclosing(fields):
            async for _ in fields:
                pass
        if not difference.proven:
            raise UnknownLoss(
                f"tenant `{self._tenant_id}`: the store was restored to revision "
                f"`{self._revision}`, and what was signed up to revision `{self.lost}` can't be "
                "read from Redis"
            )
        return difference.names

    async def run(self, suspect: Collection[bytes]) -> Pushing:
        nodes = await set_nodes.fetch(self._connection, self._tenant_id, [ROOT])
        root = nodes.get(ROOT, EMPTY_ROOT)
        known = None if self._head is None else self._head.root
        difference = Difference(self._connection, self._sets, self._tenant_id, known)
        async with aclosing(difference.fields(root, self._held.root)) as fields:
            async for field, body in fields:
                await self._batches.add(field, body)
        for field, body in await self._wrong_fields(suspect):
            await self._batches.add(field, body)
        keep_head = self._head_is_current(node_digest(root), HEAD in suspect)
        return await self._finish(difference, node_digest(root), keep_head)

    async def _finish(self, difference: Difference, root: str, keep_head: bool) -> Pushing:
        if keep_head and not self._batches.fields:
            return Pushing.current
        at = head = b""
        if not keep_head:
            self._batches.fields[HISTORY] = self._signer.history
            at, head = self._signer.at(self._revision), self._new_head(difference, root)
        await self._batches.finish(at, head)
        return Pushing.mended if self._head is not None else Pushing.rebuilt

    def _head_is_current(self, root: str, suspect: bool) -> bool:
        """Whether the head in Redis is right. Any of the log's keys may have signed it, unless a
        sidecar reports that it can't verify it (`suspect`)."""
        head, held = self._head, self._held
        if head is None or (head.revision, head.root) != (self._revision, root):
            return False
        if held.at != self._signer.at(self._revision):
            return False
        if self._signer.signed_by_us(self._tenant_id, held.head):
            return held.history == self._signer.history
        return not suspect

    def _new_head(self, difference: Difference, root: str) -> bytes:
        before = self._head
        since, names = 0, None
        if before is not None and before.revision <= self._revision:
            since = before.revision
            if difference.proven and len(difference.names) <= MAX_CHANGED_NAMES:
                names = tuple(sorted(difference.names))
        head = SetHead(self._tenant_id, self._signer.epoch, since, self._revision, root, names)
        return head.sealed(self._signer.ring.signer)

    async def _wrong_fields(self, suspect: Collection[bytes]) -> list[tuple[bytes, bytes | None]]:
        """The suspect fields, and the nodes that prove them, that really differ from the store."""
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
        return [
            field for field, there in zip(right.items(), held, strict=True) if field[1] != there
        ]
