"""Reads pages of changes for sidecars. Those that wait for the same page share one read of the
store and one encoding of its documents."""

from typing import NamedTuple

import orjson

from control_api.caches.shared_reads import SharedReads
from control_api.responses.sidecars import MAX_PAGE_BYTES, SetDocument
from control_api.store.queries import documents
from control_api.store.store import Store

MAX_DOCUMENTS = 512
"""The most documents in one page."""


class EncodedPage(NamedTuple):
    """A page of changes, and the JSON of its documents. `whole` says that they are all there are,
    rather than what changed since a revision."""

    page: documents.ChangePage
    documents: orjson.Fragment
    whole: bool = False


def encoded(page: documents.ChangePage, *, whole: bool = False) -> EncodedPage:
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
    """Pages of everything that changes in a tenant's policy set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages = SharedReads(store, self._read)

    async def since(self, tenant_id: str, revision: int) -> EncodedPage:
        """The tenant's changes after `revision`. Raises `ReadFault`, and `NotFound` if there is no
        such tenant."""
        return await self._pages.get((tenant_id, revision))

    async def _read(self, key: tuple[str, int]) -> EncodedPage:
        async with self._store.reading(key[0]) as connection:
            return encoded(
                await documents.since(
                    connection, *key, limit=MAX_DOCUMENTS, max_bytes=MAX_PAGE_BYTES
                )
            )
