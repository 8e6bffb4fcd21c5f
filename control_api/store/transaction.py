"""One change of a tenant: its rows, the log record of it, and the policy-set documents that follow
from it, committed together or not at all. Knows no route and no management rule.
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
    """The documents that a transaction published (None if removed), the revisions before and after,
    and the changed nodes of the Merkle map over them (`policies.sets.merkle_map`)."""

    since: int
    revision: int
    documents: dict[str, bytes | None]
    nodes: dict[str, bytes | None]


class Transaction:
    """The argument of `Store.write`'s work. Use `connection` for rows; `now` is the transaction's
    time in microseconds."""

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
        """The tenant's revision as this transaction leaves it; None if there is no such tenant."""
        return self._revision

    async def append(self, record: Record) -> Appended:
        """Adds the record to the tenant's log, at the returned position once this commits."""
        if self._chain is None:
            # INVARIANT: the tenant's row is locked before its log's head (see `begin`), so that two
            # replicas can't deadlock.
            self._chain = await self.connection.run_sync(LogChain.load, self.tenant_id)
        return self._chain.add(record, self.now)

    async def publish(self, changed: Mapping[str, bytes | None]) -> int:
        """Publishes documents of the tenant's policy set, None to remove one; returns the tenant's
        new revision.

        A document whose digest is unchanged is skipped. Each of the others gets a revision of its
        own, so that a page of changes can end after any of them.
        """
        revision = await self.lock()
        news = await self._changed_documents(changed)
        if not news:
            return revision
        digests = {
            name: None if body is None else document_digest(body) for name, body in news.items()
        }
        rows = [
            {
                "tenant_id": self.tenant_id,
                "name": name,
                "revision": revision + place,
                "digest": digests[name],
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
        self._digests.update(digests)
        return self._revision

    async def advance_revision(self, by: int) -> None:
        """Adds `by` to the revision of the tenant and of each of its documents. A sidecar below the
        result has to reload the policy set; one above it can continue."""
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
        """Locks the tenant's row until the transaction ends: of two replicas that change a tenant,
        one waits here. The store calls this; a tenant still to be created has no row to lock."""
        row = select(tenants.c.revision).where(tenants.c.tenant_id == self.tenant_id)
        found = await self.connection.execute(row.with_for_update())
        self._revision = found.scalar_one_or_none()
        self._since = self._revision or 0

    async def lock(self) -> int:
        """The tenant's revision, locked until the transaction ends. Raises `NotFound` if there is
        no such tenant."""
        if self._revision is None:  # created in this transaction, or missing
            await self.begin()
        if self._revision is None:
            raise NotFound(f"no such tenant: `{self.tenant_id}`")
        return self._revision

    async def finish(self) -> Published | None:
        """Writes the appended records, and returns what was published, if anything. The store calls
        this."""
        if self._chain is not None:
            await self.connection.run_sync(self._chain.save)
        if not self._published:
            return None
        assert self._revision is not None
        nodes = await set_nodes.update_nodes(self.connection, self.tenant_id, self._digests)
        return Published(self._since, self._revision, self._published, nodes)

    async def _changed_documents(
        self, changed: Mapping[str, bytes | None]
    ) -> dict[str, bytes | None]:
        """The documents of `changed` that differ from the stored ones."""
        stored: dict[str, str | None] = {}
        names = list(changed)
        for at in range(0, len(names), _CHUNK):
            found = await self.connection.execute(
                select(documents.c.name, documents.c.digest).where(
                    documents.c.tenant_id == self.tenant_id,
                    documents.c.name.in_(names[at : at + _CHUNK]),
                )
            )
            stored |= {row.name: row.digest for row in found}
        return {
            name: body
            for name, body in changed.items()
            if (None if body is None else document_digest(body)) != stored.get(name)
        }
