"""Makes a set in Redis the store's, whatever it is at the moment. Knows nothing of when.

    what Redis holds > one state of the store > where they differ > moved by compare-and-set

In that order: Redis is told of commits alone, so a set that was read before the store is never
ahead of it, unless the store was put back to an older state.

What fits goes in one step with the head, so that a reader sees the set before it or after it. A set
that has to be rebuilt goes in pieces, the head last; a reader finds no head until then, or one
whose nodes it does not find, and waits.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.metrics import Pushing
from control_api.publishing.batch import Batches, Busy, Moved
from control_api.publishing.difference import SMALL, Difference
from control_api.publishing.sets import Held, Sets
from control_api.store import documents, set_nodes, tenants
from control_api.store.store import Store
from policies.ground.canonical import encode
from policies.set_head import MANY, Head, NotBelieved
from policies.set_keys import HISTORY, at, document_field, node_field
from policies.set_tree import EMPTY_ROOT, ROOT, node_digest, nodes_of
from policies.signing import Signer

_log = logging.getLogger("sluice.publishing")
NO_HISTORY = encode([])


@dataclass(frozen=True, slots=True)
class Seal:
    """In whose name heads are signed."""

    signer: Signer
    epoch: str

    def at(self, revision: int) -> bytes:
        return at(self.epoch, revision)

    def stands_in(self, held: Held) -> bool:
        """Whether the set says that it is of our store, at least."""
        epoch, _, revision = (held.at or b"").rpartition(b":")
        return epoch == self.epoch.encode() and revision.isdigit()

    def opened(self, tenant_id: str, held: Held) -> Head | None:
        """The head that Redis holds, None where it is none of ours."""
        try:
            head = Head.opened(held.head or b"", self.signer.public, tenant_id)
        except NotBelieved:
            return None
        return head if head.epoch == self.epoch else None


class Mender:
    """`token()` names a lock's owner, anew for each attempt."""

    def __init__(self, store: Store, sets: Sets, seal: Seal, token: Callable[[], str]) -> None:
        self._store = store
        self._sets = sets
        self._seal = seal
        self._token = token

    async def mend(self, tenant_id: str, doubted: Iterable[bytes]) -> Pushing:
        """`doubted` are fields that a sidecar did not find as they should be. `Moved` where the set
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
                raise Moved
            return await self._look(tenant_id, Held(None, None, None, None), token, doubted)
        finally:
            await self._sets.unlock(tenant_id, token)

    async def _look(
        self, tenant_id: str, held: Held, token: str, doubted: Iterable[bytes]
    ) -> Pushing:
        async with self._store.snapshot(tenant_id) as connection:
            standing = await tenants.standing(connection, [tenant_id])
            if tenant_id not in standing:
                return Pushing.current
            revision, _ = standing[tenant_id]
            batches = Batches(self._sets, tenant_id, held.at, self._token, token)
            work = _Work(self, connection, batches, tenant_id, held, revision)
            try:
                return await work.run(doubted)
            finally:
                await batches.close()


class _Work:
    """One tenant's, while one state of the store is seen."""

    def __init__(
        self,
        mender: Mender,
        connection: AsyncConnection,
        batches: Batches,
        tenant_id: str,
        held: Held,
        revision: int,
    ) -> None:
        self._sets, self._seal = mender._sets, mender._seal
        self._connection = connection
        self._batches = batches
        self._tenant_id = tenant_id
        self._held = held
        self._revision = revision
        self._head = self._seal.opened(tenant_id, held)
        if self._head is not None and self._head.revision > revision:
            _log.error(
                "tenant `%s`: Redis is at revision %d of this store and the store at %d: "
                "the store was put back to an older state, and Redis follows",
                tenant_id,
                self._head.revision,
                revision,
            )

    async def run(self, doubted: Iterable[bytes]) -> Pushing:
        nodes = await set_nodes.bodies(self._connection, self._tenant_id, [ROOT])
        root = nodes.get(ROOT, EMPTY_ROOT)
        known = None if self._head is None else self._head.root
        difference = Difference(self._connection, self._sets, self._tenant_id, known)
        async with aclosing(difference.fields(root, self._held.root)) as fields:
            async for field, body in fields:
                await self._batches.add(field, body)
        for field, body in await self._doubted(doubted):
            await self._batches.add(field, body)
        return await self._finish(difference, node_digest(root))

    async def _finish(self, difference: Difference, root: str) -> Pushing:
        stands = self._stands(root)
        if stands and not self._batches.fields:
            return Pushing.current
        at = head = b""
        if not stands:
            self._batches.fields[HISTORY] = NO_HISTORY
            at, head = self._seal.at(self._revision), self._new_head(difference, root)
        await self._batches.finish(at, head)
        return Pushing.mended if self._head is not None else Pushing.rebuilt

    def _stands(self, root: str) -> bool:
        """Whether the head that Redis holds is the one that there should be."""
        return (
            self._head is not None
            and (self._head.revision, self._head.root) == (self._revision, root)
            and self._held.at == self._seal.at(self._revision)
            and self._held.history == NO_HISTORY
        )

    def _new_head(self, difference: Difference, root: str) -> bytes:
        before = self._head
        since, names = 0, None
        if before is not None and before.revision <= self._revision:
            since = before.revision
            if difference.proven and len(difference.names) <= MANY:
                names = tuple(sorted(difference.names))
        head = Head(self._tenant_id, self._seal.epoch, since, self._revision, root, names)
        return head.sealed(self._seal.signer)

    async def _doubted(self, doubted: Iterable[bytes]) -> list[tuple[bytes, bytes | None]]:
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
        found = await set_nodes.bodies(self._connection, self._tenant_id, sorted(nodes))
        right |= {node_field(node): found.get(node) for node in sorted(nodes)}
        held = await self._sets.fields(self._tenant_id, list(right))
        return [
            field for field, there in zip(right.items(), held, strict=True) if field[1] != there
        ]
