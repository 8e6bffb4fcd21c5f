"""Makes the pages of the policy set that sidecars fetch. Sidecars that wait for the same change
share a page; an enrolled sidecar gets only the documents that it may read.

INVARIANT: a read begins after every request that it answers. A sidecar counts the age of its policy
set from its request, so an earlier read would confirm an earlier state.

Requests for the same page share one read of the store and one encoding of its documents.

An enrolled sidecar may read these documents:

    tenant, sources                 every sidecar
    agent/…, enrolment/…            its own agent's
    role/…, candidate/<name>/…      those of a role that its agent may act in
    key/…                           one that callers use, of its agent or of none
    session/…                       a revoked session of its agent

INVARIANT: for an enrolled sidecar all other documents don't exist, and yet it decides as if it had
them: calls that name another agent are denied before any of its documents is looked at, and a role
that the agent may not act in is not cited.

The pages of an enrolled sidecar are of two kinds:

    what changed    the tenant's changes, read once for all of its sidecars, less what is not given
    the whole       all that is given, in one page: at first, after more changes than a page holds,
                    and once the agent itself has changed, which may give and take other roles

Each is complete in one page: between two pages, the documents that the sidecar may read could
change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

import orjson

from control_api.fleet import document_owners
from control_api.fleet.document_owners import Owners
from control_api.fleet.models import MAX_PAGE_BYTES, SetDocument
from control_api.store.errors import ReadFault
from control_api.store.group_commit import start_task
from control_api.store.queries import documents
from control_api.store.queries.documents import DocumentPage, StoredDocument
from control_api.store.store import Store
from policies.ground.errors import SluiceError
from policies.sets.policy_set import (
    CANDIDATE,
    KEY,
    ROLE,
    SESSION,
    TENANT,
    agent_name,
    enrolment_name,
    role_name,
)
from policies.sets.source_levels import SOURCES

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedReads(Generic[K, V]):
    """Shares reads between requests. For each key at most one read runs at a time; requests that
    arrive meanwhile share the next one."""

    def __init__(self, store: Store, read: Callable[[K], Awaitable[V]]) -> None:
        self._store = store
        self._read = read
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._active: set[K] = set()

    async def get(self, key: K) -> V:
        """Return the result of a read for the key. Raise the read's own error, or `ReadFault` if
        the service stops."""
        if key not in self._active:
            # Its first step is a later one of the event loop, so it serves this request too.
            start_task(self._store.group, self._read_while_awaited(key))
            self._active.add(key)
        found = self._waiting.get(key)
        if found is None:
            found = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            # Shielded: a request that is cancelled leaves the answer to the others.
            return await asyncio.shield(found)
        except SluiceError as error:
            # A new exception for each: one in several tasks would mix up their traces.
            raise type(error)(error.message) from error

    async def _read_while_awaited(self, key: K) -> None:
        try:
            while (found := self._waiting.pop(key, None)) is not None:
                # Requests that arrive from here on wait for the next read.
                try:
                    found.set_result(await self._read(key))
                except Exception as error:  # noqa: BLE001  each request raises it
                    found.set_exception(error)
                finally:
                    if not found.done():  # the service is stopping
                        found.set_exception(ReadFault())
        finally:
            self._active.discard(key)
            if (found := self._waiting.pop(key, None)) is not None:
                found.set_exception(ReadFault())


MAX_DOCUMENTS = 512
"""The most documents in one page."""


class EncodedPage(NamedTuple):
    """A page of changes in the policy set, and the JSON of its documents. `whole` is True if it
    holds all documents, rather than those that changed since a revision."""

    page: documents.DocumentPage
    documents: orjson.Fragment
    whole: bool = False


def encoded(page: documents.DocumentPage, *, whole: bool = False) -> EncodedPage:
    shown = [
        SetDocument(
            document.name,
            document.revision,
            document.digest,
            None if document.body is None else document.body.decode(),
        )
        for document in page.documents
    ]
    return EncodedPage(page, orjson.Fragment(orjson.dumps(shown)), whole)


class PageReads:
    """Reads pages with all changes in a tenant's policy set, shared between sidecars."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages = SharedReads(store, self._read)

    async def since(self, tenant_id: str, revision: int) -> EncodedPage:
        """Return the tenant's changes after `revision`. Raise `ReadFault` if the database fails,
        and `NotFound` if there is no such tenant."""
        return await self._pages.get((tenant_id, revision))

    async def _read(self, key: tuple[str, int]) -> EncodedPage:
        async with self._store.reading(key[0]) as connection:
            return encoded(
                await documents.since(
                    connection, *key, limit=MAX_DOCUMENTS, max_bytes=MAX_PAGE_BYTES
                )
            )


CALLERS = ("evaluate", "read", "admin")
"""The scopes of the keys with which agents call a sidecar."""


class Reader(NamedTuple):
    """The agent of an enrolled sidecar that fetches the set, and the roles that the agent may act
    in."""

    agent_id: str
    roles: frozenset[str]


def visible_to(document: StoredDocument, reader: Reader, owners: Owners) -> StoredDocument | None:
    """Return the document as the reader may see it. A document that was the reader's and no longer
    is becomes a removed one. Return None if the reader may not know of it."""
    name = document.name
    if name in (TENANT, SOURCES, agent_name(reader.agent_id), enrolment_name(reader.agent_id)):
        return document
    if name.startswith(KEY):
        return _key_visible_to(document, reader, owners)
    if name.startswith(SESSION):
        return document if owners.sessions.get(name) == reader.agent_id else None
    role = role_of(name)
    return document if role is not None and role in reader.roles else None


def role_of(name: str) -> str | None:
    """Return the role that the document is about, or None if it is no document of a role."""
    if name.startswith(ROLE):
        return name.removeprefix(ROLE)
    if name.startswith(CANDIDATE):
        return name.removeprefix(CANDIDATE).partition("/")[2]
    return None


def _key_visible_to(
    document: StoredDocument, reader: Reader, owners: Owners
) -> StoredDocument | None:
    owner = owners.keys.get(document.name)
    if owner is None or owner.scope not in CALLERS:
        return None
    if owner.agent_id in (None, reader.agent_id):
        return document
    # A sidecar that was given the key must forget it, or the key would go on as it was bound.
    if None in owner.former or reader.agent_id in owner.former:
        return document._replace(digest=None, body=None)
    return None


class _Changes(NamedTuple):
    """A tenant's changes after a revision, the owners of the changed documents, and the tenant's
    settings."""

    page: DocumentPage
    owners: Owners
    settings: Sequence[StoredDocument]


class AgentPages:
    """Makes the pages of the policy set for enrolled sidecars. Each page has only the documents
    that the sidecars of one agent may read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = SharedReads(store, self._read_changes)
        self._wholes = SharedReads(store, self._read_whole)

    async def since(self, tenant_id: str, agent_id: str, revision: int) -> EncodedPage:
        """Return the changes after `revision` that the agent's sidecars may read, or all their
        documents. Raise `ReadFault` if the database fails, and `NotFound` if there is no such
        tenant."""
        if revision > 0:
            changes = await self._changes.get((tenant_id, revision))
            reader = await self._reader(tenant_id, agent_id, changes.page, revision)
            if reader is not None:
                return encoded(_visible_page(changes, reader, revision))
        return await self._wholes.get((tenant_id, agent_id))

    async def named(self, tenant_id: str, agent_id: str, names: Sequence[str]) -> EncodedPage:
        """Return the documents with these names. A document that the agent's sidecars may not read
        looks like a missing one."""
        async with self._store.snapshot(tenant_id) as connection:
            page = await documents.by_name(connection, tenant_id, names, max_bytes=MAX_PAGE_BYTES)
            owners = await document_owners.owners_of(
                connection, tenant_id, (each.name for each in page.documents)
            )
            _, roles = await document_owners.agent_of(connection, tenant_id, agent_id)
        reader = Reader(agent_id, frozenset(roles))
        shown = [
            visible_to(each, reader, owners) or StoredDocument(each.name, 0, None, None)
            for each in page.documents
        ]
        return encoded(page._replace(documents=shown))

    async def _reader(
        self, tenant_id: str, agent_id: str, page: DocumentPage, revision: int
    ) -> Reader | None:
        """Return the agent with its roles as of this page. Return None if the changes are not
        enough to say what the agent may read, so that all documents must be sent."""
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
                name
                for name in names
                if visible_to(StoredDocument(name, 0, None, None), reader, owners)
            ]
            found = await document_owners.named(connection, tenant_id, own)
        return encoded(DocumentPage(present, found, False, reset_below), whole=True)


def _visible_page(changes: _Changes, reader: Reader, revision: int) -> DocumentPage:
    """Return the page without the documents that the reader may not see."""
    page = changes.page
    shown = [
        each
        for document in page.documents
        if (each := visible_to(document, reader, changes.owners))
    ]
    if not shown and page.revision > revision:
        # A page without documents says that nothing changed, and a sidecar pauses after one that
        # comes before its time: what is its own would then arrive late.
        shown = [each._replace(revision=page.revision) for each in changes.settings]
    return page._replace(documents=shown)
