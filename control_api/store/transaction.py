"""One change of a tenant: rows, the record of it in the log, and the documents that follow from it,
committed together or not at all. Knows no route and no rule of management.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store import set_nodes
from control_api.store.log.chain import Appended, LogChain
from control_api.store.schema.tables import documents, tenants
from policies.ground.errors import NotFound
from policies.sets.policy_set import document_digest
from policies.trail.record import Record

_CHUNK = 500  # names in one statement


class Published(NamedTuple):
    """What a transaction published: the revisions before and after it, each document that changed,
    and the nodes of the tree over them (`policies.sets.merkle_map`)."""

    since: int
    revision: int
    documents: dict[str, bytes | None]
    nodes: dict[str, bytes | None]


class Transaction:
    """What `Store.write` hands to its work. `connection` is for rows; `now` is the transaction's
    time, in microseconds."""

    def __init__(self, connection: AsyncConnection, tenant_id: str, now: int) -> None:
        self.connection = connection
        self.tenant_id = tenant_id
        self.now = now
        self._chain: LogChain | None = None
        self._published: dict[str, bytes | None] = {}
        self._digests: dict[str, str | None] = {}
        self._revision: int | None = None
        self._since = 0

    @property
    def revision(self) -> int | None:
        """The tenant's, as this transaction leaves it; None where there is no such tenant."""
        return self._revision

    async def append(self, record: Record) -> Appended:
        """The record's place in the tenant's log, taken when the transaction commits."""
        if self._chain is None:
            # The tenant's row is held already, always before its head: two replicas can't wait for
            # each other.
            self._chain = await self.connection.run_sync(LogChain.load, self.tenant_id)
        return self._chain.add(record, self.now)

    async def publish(self, changed: Mapping[str, bytes | None]) -> int:
        """Documents of the tenant's policy set, None to remove one; the revision after them.

        A document that already says the same is left alone. Each of the others takes a revision of
        its own, so that a page of changes can end after any of them.
        """
        revision = await self.lock()
        news = await self._news(changed)
        if not news:
            return revision
        rows = [
            {
                "tenant_id": self.tenant_id,
                "name": name,
                "revision": revision + place,
                "digest": None if body is None else document_digest(body),
                "body": body,
            }
            for place, (name, body) in enumerate(news.items(), 1)
        ]
        names = list(news)
        for at in range(0, len(names), _CHUNK):
            await self.connection.execute(
                delete(documents).where(
                    documents.c.tenant_id == self.tenant_id,
                    documents.c.name.in_(names[at : at + _CHUNK]),
                )
            )
        for at in range(0, len(rows), _CHUNK):
            await self.connection.execute(insert(documents), rows[at : at + _CHUNK])
        self._revision = revision + len(rows)
        await self.connection.execute(
            update(tenants)
            .where(tenants.c.tenant_id == self.tenant_id)
            .values(revision=self._revision)
        )
        self._published.update(news)
        for name, body in news.items():
            self._digests[name] = None if body is None else document_digest(body)
        return self._revision

    async def advance_revision(self, by: int) -> None:
        """The tenant's revision, and that of each of its documents, is greater by so much: whoever
        follows from below has to begin anew, and can go on from above."""
        revision = await self.lock()
        self._revision = revision + by
        await self.connection.execute(
            update(documents)
            .where(documents.c.tenant_id == self.tenant_id)
            .values(revision=documents.c.revision + by)
        )
        await self.connection.execute(
            update(tenants)
            .where(tenants.c.tenant_id == self.tenant_id)
            .values(revision=self._revision, reset_below=by + 1)
        )

    async def begin(self) -> None:
        """Hold the tenant's row until the end: of two replicas that change a tenant, one waits
        here. Called by the store; a tenant that is yet to be made has no row."""
        row = select(tenants.c.revision).where(tenants.c.tenant_id == self.tenant_id)
        found = await self.connection.execute(row.with_for_update())
        self._revision = found.scalar_one_or_none()
        self._since = self._revision or 0

    async def lock(self) -> int:
        """The tenant's revision, which nobody else moves until the end. `NotFound` where there is
        no such tenant."""
        if self._revision is None:  # made in this transaction, or not there
            await self.begin()
        if self._revision is None:
            raise NotFound(f"no such tenant: `{self.tenant_id}`")
        return self._revision

    async def finish(self) -> Published | None:
        """Writes what was appended; what was published, or None. Called by the store."""
        if self._chain is not None:
            await self.connection.run_sync(self._chain.save)
        if not self._published:
            return None
        assert self._revision is not None
        nodes = await set_nodes.update_nodes(self.connection, self.tenant_id, self._digests)
        return Published(self._since, self._revision, self._published, nodes)

    async def _news(self, changed: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
        """Those of `changed` that say something new."""
        held: dict[str, str | None] = {}
        names = list(changed)
        for at in range(0, len(names), _CHUNK):
            found = await self.connection.execute(
                select(documents.c.name, documents.c.digest).where(
                    documents.c.tenant_id == self.tenant_id,
                    documents.c.name.in_(names[at : at + _CHUNK]),
                )
            )
            held |= {row.name: row.digest for row in found}
        return {
            name: body
            for name, body in changed.items()
            if (None if body is None else document_digest(body)) != held.get(name)
        }
