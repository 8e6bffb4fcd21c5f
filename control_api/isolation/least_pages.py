"""Reads the pages of the policy set that enrolled sidecars are given (`least_documents`).

    what changed    the tenant's changes, read once for all of its sidecars, less what is not given
    the whole       all that is given, in one page: at first, after more changes than a page holds,
                    and once the agent itself has changed, which may give and take other roles

A page is never one of several: what may be given could change between them. Knows no route.
"""

from collections.abc import Sequence
from typing import NamedTuple

from control_api.caches.page_reads import MAX_DOCUMENTS, EncodedPage, encoded
from control_api.caches.shared_reads import SharedReads
from control_api.isolation.least_documents import CALLERS, Reader, given, role_of
from control_api.responses.sidecars import MAX_PAGE_BYTES
from control_api.store.queries import document_owners, documents
from control_api.store.queries.document_owners import Owners
from control_api.store.queries.documents import ChangePage, StoredDocument
from control_api.store.store import Store
from policies.sets.policy_set import TENANT, agent_name, enrolment_name, role_name
from policies.sets.source_levels import SOURCES


class _Changes(NamedTuple):
    """A tenant's changes after a revision, whose they are, and the tenant's settings."""

    page: ChangePage
    owners: Owners
    settings: Sequence[StoredDocument]


class LeastPages:
    """Pages for the sidecars of one agent each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = SharedReads(store, self._read_changes)
        self._wholes = SharedReads(store, self._read_whole)

    async def since(self, tenant_id: str, agent_id: str, revision: int) -> EncodedPage:
        """What the agent's sidecars are given of the changes after `revision`, or the whole. Raises
        `ReadFault`, and `NotFound` if there is no such tenant."""
        if revision > 0:
            changes = await self._changes.get((tenant_id, revision))
            reader = await self._reader(tenant_id, agent_id, changes.page, revision)
            if reader is not None:
                return encoded(_less(changes, reader, revision))
        return await self._wholes.get((tenant_id, agent_id))

    async def named(self, tenant_id: str, agent_id: str, names: Sequence[str]) -> EncodedPage:
        """The documents of these names. One that is not given looks like one that is missing."""
        async with self._store.snapshot(tenant_id) as connection:
            page = await documents.by_name(connection, tenant_id, names, max_bytes=MAX_PAGE_BYTES)
            owners = await document_owners.owners_of(
                connection, tenant_id, (each.name for each in page.documents)
            )
            _, roles = await document_owners.agent_of(connection, tenant_id, agent_id)
        reader = Reader(agent_id, frozenset(roles))
        shown = [
            given(each, reader, owners) or StoredDocument(each.name, 0, None, None)
            for each in page.documents
        ]
        return encoded(page._replace(documents=shown))

    async def _reader(
        self, tenant_id: str, agent_id: str, page: ChangePage, revision: int
    ) -> Reader | None:
        """The agent as of this page; None if the page alone can't say what it is given."""
        if page.more or any(each.name == agent_name(agent_id) for each in page.documents):
            return None
        if not any(role_of(each.name) for each in page.documents):
            return Reader(agent_id, frozenset())  # nothing here depends on the roles
        async with self._store.reading(tenant_id) as connection:
            changed, roles = await document_owners.agent_of(connection, tenant_id, agent_id)
        # Changed after the page was read: these roles are not those of the page's revision.
        return Reader(agent_id, frozenset(roles)) if changed <= revision else None

    async def _read_changes(self, key: tuple[str, int]) -> _Changes:
        tenant_id, revision = key
        async with self._store.snapshot(tenant_id) as connection:
            page = await documents.since(
                connection, tenant_id, revision, limit=MAX_DOCUMENTS, max_bytes=MAX_PAGE_BYTES
            )
            names = [each.name for each in page.documents]
            owners = await document_owners.owners_of(connection, tenant_id, names)
            settings = await document_owners.named(connection, tenant_id, [TENANT])
            return _Changes(page, owners, settings)

    async def _read_whole(self, key: tuple[str, str]) -> EncodedPage:
        tenant_id, agent_id = key
        async with self._store.snapshot(tenant_id) as connection:
            present, reset_below = await documents.revisions(connection, tenant_id)
            _, permitted = await document_owners.agent_of(connection, tenant_id, agent_id)
            reader = Reader(agent_id, frozenset(permitted))
            listed = await document_owners.listed(connection, tenant_id)
            names = [
                TENANT,
                SOURCES,
                agent_name(agent_id),
                enrolment_name(agent_id),
                *map(role_name, permitted),
                *listed,
                *await document_owners.keys_for(connection, tenant_id, agent_id, CALLERS),
            ]
            owners = await document_owners.owners_of(connection, tenant_id, names)
            own = [
                name for name in names if given(StoredDocument(name, 0, None, None), reader, owners)
            ]
            found = await document_owners.named(connection, tenant_id, own)
        return encoded(ChangePage(present, found, False, reset_below), whole=True)


def _less(changes: _Changes, reader: Reader, revision: int) -> ChangePage:
    """The page without what the reader is not given."""
    page = changes.page
    shown = [
        each for document in page.documents if (each := given(document, reader, changes.owners))
    ]
    if not shown and page.revision > revision:
        # A page without documents says that nothing changed, and a sidecar pauses after one that
        # comes before its time: what is its own would then arrive late.
        shown = [each._replace(revision=page.revision) for each in changes.settings]
    return page._replace(documents=shown)
