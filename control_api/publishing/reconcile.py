"""Makes a set in Redis the store's, whatever it is at the moment. Knows nothing of when.

    what Redis holds > one state of the store > where they differ > moved by compare-and-set

In that order: Redis is told of commits alone, so a set that was read before the store is never
ahead of it, unless the store was put back to an older state: then that comes first (`put_back`).

What fits goes in one step with the head, so that a reader sees the set before it or after it. A set
that has to be rebuilt goes in pieces, the head last; a reader finds no head until then, or one
whose nodes it does not find, and waits.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import aclosing

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.metrics.metrics import Pushing
from control_api.publishing.batch import Batches, Busy, SetChanged
from control_api.publishing.diff import SMALL, Difference
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
    """the store was put back, and nobody knows what it has lost"""


GoOn = Callable[[str, int, Iterable[str]], Awaitable[None]]


class Reconciler:
    """`token()` names a lock's owner, anew for each attempt; `go_on` is called where the store was
    put back to an older state, with the newest revision that was signed and the documents that were
    other then."""

    def __init__(
        self, store: Store, sets: RedisSets, seal: SetSigner, token: Callable[[], str], go_on: GoOn
    ) -> None:
        self._go_on = go_on
        self._store = store
        self._sets = sets
        self._seal = seal
        self._token = token

    async def mend(self, tenant_id: str, doubted: Collection[bytes]) -> Pushing:
        """`doubted` are fields that a sidecar did not find as they should be. `SetChanged` where
        the set
        moved meanwhile: it is tried again."""
        held = await self._sets.held(tenant_id)
        if self._seal.stands_in(held):
            return await self._look(tenant_id, held, "", doubted)
        # Of another store, or of nobody: what lies there besides would never be looked at.
        token = self._token()
        if not await self._sets.lock(tenant_id, token):
            raise Busy
        try:
            if not await self._sets.clear(tenant_id, held.at):
                raise SetChanged
            return await self._look(tenant_id, HeldSet(None, None, None, None), token, doubted)
        finally:
            await self._sets.unlock(tenant_id, token)

    async def _look(
        self, tenant_id: str, held: HeldSet, token: str, doubted: Collection[bytes]
    ) -> Pushing:
        head = await self._head(tenant_id, held.head)
        async with self._store.snapshot(tenant_id) as connection:
            standing = await tenants.states(connection, [tenant_id])
            if tenant_id not in standing:
                return Pushing.current
            revision, _ = standing[tenant_id]
            batches = Batches(self._sets, tenant_id, held.at, self._token, token)
            work = _Work(self, connection, batches, tenant_id, held, head, revision)
            try:
                if work.lost is None:
                    return await work.run(doubted)
                lost, names = work.lost, await work.differing()
            finally:
                await batches.close()
        await self._go_on(tenant_id, lost, names)
        raise SetChanged  # the store has: what it holds now is looked at anew

    async def _head(self, tenant_id: str, sealed: bytes | None) -> SetHead | None:
        """The head that Redis holds, None where it is none of ours. In a rotation a replica may
        sign already by a key that follows ours: then the store says so."""
        if sealed is None:
            return None
        head = self._seal.opened(tenant_id, sealed, self._seal.ring.trusted())
        if head is None:
            publics = await log_keys.trusted(self._store, self._seal.ring)
            head = self._seal.opened(tenant_id, sealed, publics)
        return head


class _Work:
    """One tenant's, while one state of the store is seen."""

    def __init__(
        self,
        mender: Reconciler,
        connection: AsyncConnection,
        batches: Batches,
        tenant_id: str,
        held: HeldSet,
        head: SetHead | None,
        revision: int,
    ) -> None:
        self._sets, self._seal = mender._sets, mender._seal
        self._connection = connection
        self._batches = batches
        self._tenant_id = tenant_id
        self._held = held
        self._revision = revision
        self._head = head
        ahead = head is not None and head.revision > revision
        self.lost = head.revision if ahead and head is not None else None
        """The newest revision that was signed, where the store has lost it; else None."""

    async def differing(self) -> set[str]:
        """The documents in which what was signed and what the store has differ. `UnknownLoss` where
        what Redis holds does not tell: then nobody knows what is lost."""
        nodes = await set_nodes.fetch(self._connection, self._tenant_id, [ROOT])
        known = None if self._head is None else self._head.root
        difference = Difference(self._connection, self._sets, self._tenant_id, known)
        fields = difference.fields(nodes.get(ROOT, EMPTY_ROOT), self._held.root)
        async with aclosing(fields):
            async for _ in fields:
                pass
        if not difference.proven:
            raise UnknownLoss(
                f"tenant `{self._tenant_id}`: the store was put back to revision "
                f"{self._revision}, and what was signed up to {self.lost} can't be read"
            )
        return difference.names

    async def run(self, doubted: Collection[bytes]) -> Pushing:
        nodes = await set_nodes.fetch(self._connection, self._tenant_id, [ROOT])
        root = nodes.get(ROOT, EMPTY_ROOT)
        known = None if self._head is None else self._head.root
        difference = Difference(self._connection, self._sets, self._tenant_id, known)
        async with aclosing(difference.fields(root, self._held.root)) as fields:
            async for field, body in fields:
                await self._batches.add(field, body)
        for field, body in await self._doubted(doubted):
            await self._batches.add(field, body)
        stands = self._stands(node_digest(root), HEAD in doubted)
        return await self._finish(difference, node_digest(root), stands)

    async def _finish(self, difference: Difference, root: str, stands: bool) -> Pushing:
        if stands and not self._batches.fields:
            return Pushing.current
        at = head = b""
        if not stands:
            self._batches.fields[HISTORY] = self._seal.history
            at, head = self._seal.at(self._revision), self._new_head(difference, root)
        await self._batches.finish(at, head)
        return Pushing.mended if self._head is not None else Pushing.rebuilt

    def _stands(self, root: str, doubted: bool) -> bool:
        """Whether the head that Redis holds is the one that there should be. By which of the log's
        keys matters only where a sidecar doubts it."""
        head, held = self._head, self._held
        if head is None or (head.revision, head.root) != (self._revision, root):
            return False
        if held.at != self._seal.at(self._revision):
            return False
        if self._seal.is_ours(self._tenant_id, held.head):
            return held.history == self._seal.history
        return not doubted

    def _new_head(self, difference: Difference, root: str) -> bytes:
        before = self._head
        since, names = 0, None
        if before is not None and before.revision <= self._revision:
            since = before.revision
            if difference.proven and len(difference.names) <= MAX_CHANGED_NAMES:
                names = tuple(sorted(difference.names))
        head = SetHead(self._tenant_id, self._seal.epoch, since, self._revision, root, names)
        return head.sealed(self._seal.ring.signer)

    async def _doubted(self, doubted: Collection[bytes]) -> list[tuple[bytes, bytes | None]]:
        """Those of the fields, and of the nodes that prove them, that are not as in the store."""
        names = [field[2:].decode() for field in doubted if field.startswith(b"d/")]
        nodes = {field[2:].decode() for field in doubted if field.startswith(b"n/")}
        if not names and not nodes:
            return []
        nodes |= nodes_of(names)
        right: dict[bytes, bytes | None] = dict.fromkeys(map(document_field, names))
        async for name, body in documents.bodies(
            self._connection, self._tenant_id, names, small=SMALL
        ):
            right[document_field(name)] = body
        found = await set_nodes.fetch(self._connection, self._tenant_id, sorted(nodes))
        right |= {node_field(node): found.get(node) for node in sorted(nodes)}
        held = await self._sets.fields(self._tenant_id, list(right))
        return [
            field for field, there in zip(right.items(), held, strict=True) if field[1] != there
        ]
