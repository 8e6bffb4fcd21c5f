"""A transaction that changes one tenant: the changed rows, the log's records of the change, and the
policy-set documents that follow from it, committed together or not at all. Knows no route and no
management rule."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store import cited_documents, notices, set_nodes
from control_api.store.log import chain
from control_api.store.log.chain import Appended, LogChain
from control_api.store.schema.statements import chunks, of_tenant
from control_api.store.schema.tables import documents, tenants
from policies.definitions.model import Candidate
from policies.ground.errors import NotFound
from policies.sets.policy_set import document_digest
from policies.trail.change import PublishedAs
from policies.trail.record import Record


class Published(NamedTuple):
    """The result of a transaction that published documents: the documents (None for a removed one),
    the revisions before and after, and the changed nodes of the Merkle map over the documents
    (`policies.sets.merkle_map`)."""

    since: int
    revision: int
    documents: dict[str, bytes | None]
    nodes: dict[str, bytes | None]


class Transaction:
    """A transaction that changes one tenant; `Store.write` passes it to its work. Use `connection`
    to read and write rows; `now` is the transaction's time in microseconds."""

    def __init__(self, connection: AsyncConnection, tenant_id: str, now: int) -> None:
        self.connection = connection
        self.tenant_id = tenant_id
        self.now = now
        self._chain: LogChain | None = None
        self._published: dict[str, bytes | None] = {}
        self._digests: dict[str, str | None] = {}
        self._revisions: dict[str, int] = {}
        self._revision: int | None = None
        self._since = 0

    @property
    def revision(self) -> int | None:
        """The tenant's revision at this point of the transaction; None if there is no such
        tenant."""
        return self._revision

    async def append(self, record: Record) -> Appended:
        """Add the record to the tenant's log, and return its position, which holds once this
        transaction commits."""
        return (await self._load_chain()).add(record, self.now)

    async def _load_chain(self) -> LogChain:
        if self._chain is None:
            # INVARIANT: the tenant's row is locked before its log's head (see `begin`), so that two
            # replicas can't deadlock.
            self._chain = await self.connection.run_sync(LogChain.load, self.tenant_id)
        return self._chain

    async def list_candidates(self, candidates: Iterable[Candidate]) -> None:
        """Store the tenant's candidates in the log's head, where those who append to the log read
        them. This transaction must also `append` a record, which tells them that the head has
        changed."""
        await self._load_chain()
        await self.connection.run_sync(chain.list_candidates, self.tenant_id, candidates)

    async def publish(self, changed: Mapping[str, bytes | None]) -> int:
        """Publish documents of the tenant's policy set and return the tenant's new revision. A body
        of None removes the document.

        Skips a document whose digest is unchanged. Each of the others gets a revision of its own,
        so that a page of changes can end after any of them.
        """
        revision = await self.lock()
        digests = {
            name: None if body is None else document_digest(body) for name, body in changed.items()
        }
        stored = await self._stored_digests(list(changed))
        # Reloading unchanged policy files must not send every sidecar the same documents again.
        news = [name for name in changed if digests[name] != stored.get(name)]
        if not news:
            return revision
        rows = [
            {
                "tenant_id": self.tenant_id,
                "name": name,
                "revision": revision + place,
                "digest": digests[name],
                "body": changed[name],
            }
            for place, name in enumerate(news, 1)
        ]
        # In this transaction: no decision may cite a document that could not be shown again.
        bodies = {name: changed[name] for name in news}
        await cited_documents.keep(self.connection, self.tenant_id, bodies, self.now)
        for names in chunks(news):
            await self.connection.execute(
                delete(documents).where(self._is_own_document, documents.c.name.in_(names))
            )
        for part in chunks(rows):
            await self.connection.execute(insert(documents), part)
        self._published.update(bodies)
        self._digests.update({name: digests[name] for name in news})
        self._revisions.update({name: revision + place for place, name in enumerate(news, 1)})
        return await self._set_revision(revision + len(rows))

    def published(self, name: str, shown: str | None = None) -> tuple[PublishedAs, ...]:
        """Return the document that was published, in a tuple, as the record of a change names it;
        an empty tuple if this transaction did not publish it. `shown` is the name to record if the
        document's own name must not be."""
        if name not in self._revisions:
            return ()
        return (PublishedAs(shown or name, self._digests[name], self._revisions[name]),)

    async def advance_revision(self, by: int) -> None:
        """Add `by` to the revision of the tenant and of each of its documents. A sidecar whose
        revision is `by` or less has to reload the policy set; one above it can continue."""
        revision = await self.lock()
        await self.connection.execute(
            update(documents)
            .where(self._is_own_document)
            .values(revision=documents.c.revision + by)
        )
        await self._set_revision(revision + by, reset_below=by + 1)

    async def begin(self) -> None:
        """Lock the tenant's row until the transaction ends: of two replicas that change a tenant,
        one waits here. A tenant that is still to be created has no row to lock. The store calls
        this."""
        # FOR UPDATE is left out on SQLite, where BEGIN IMMEDIATE has locked the whole database.
        row = select(tenants.c.revision).where(of_tenant(tenants, self.tenant_id))
        found = await self.connection.execute(row.with_for_update())
        self._revision = found.scalar_one_or_none()
        self._since = self._revision or 0

    async def lock(self) -> int:
        """Lock the tenant's row until the transaction ends, and return the tenant's revision.
        Raises `NotFound` if there is no such tenant."""
        if self._revision is None:  # created in this transaction, or missing
            await self.begin()
        if self._revision is None:
            raise NotFound(f"no such tenant: `{self.tenant_id}`")
        return self._revision

    async def finish(self) -> Published | None:
        """Write the appended records, and return what was published, None if nothing was. The store
        calls this."""
        # Write all records of the transaction at once; `append` has only numbered them in memory.
        if self._chain is not None:
            await self.connection.run_sync(self._chain.save)
        if self._revision is not None and self._revision != self._since:
            await notices.send(self.connection, self.tenant_id, self._revision)
        if not self._published:
            return None
        assert self._revision is not None
        # Update the nodes once per transaction, not in each `publish`, which would rewrite the root
        # and often the same buckets every time.
        nodes = await set_nodes.update_nodes(self.connection, self.tenant_id, self._digests)
        return Published(self._since, self._revision, self._published, nodes)

    @property
    def _is_own_document(self) -> ColumnElement[bool]:
        return of_tenant(documents, self.tenant_id)

    async def _set_revision(self, revision: int, **others: int) -> int:
        self._revision = revision
        await self.connection.execute(
            update(tenants)
            .where(of_tenant(tenants, self.tenant_id))
            .values(revision=revision, **others)
        )
        return revision

    async def _stored_digests(self, names: list[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        query = select(documents.c.name, documents.c.digest).where(self._is_own_document)
        for part in chunks(names):
            rows = await self.connection.execute(query.where(documents.c.name.in_(part)))
            found |= {row.name: row.digest for row in rows}
        return found
