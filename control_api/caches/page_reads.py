"""Reads pages of changes for sidecars. Those that wait for the same page share one read of the
store and one encoding of its documents: a change wakes every sidecar of its tenant at once.

INVARIANT: a read begins after every request that it answers. A sidecar counts the age of its policy
set from its request, so a page that was read before would confirm a state from before.
"""

import asyncio
from typing import NamedTuple

import orjson

from control_api.responses.sidecars import MAX_PAGE_BYTES, SetDocument
from control_api.store.errors import ReadFault
from control_api.store.group_commit import start_task
from control_api.store.queries import documents
from control_api.store.store import Store
from policies.ground.errors import SluiceError

MAX_DOCUMENTS = 512
"""The most documents in one page."""


class EncodedPage(NamedTuple):
    """A page of changes, and the JSON of its documents."""

    page: documents.ChangePage
    documents: orjson.Fragment


def encoded(page: documents.ChangePage) -> EncodedPage:
    shown = [
        SetDocument(
            document.name,
            document.revision,
            document.digest,
            None if document.body is None else document.body.decode(),
        )
        for document in page.documents
    ]
    return EncodedPage(page, orjson.Fragment(orjson.dumps(shown)))


class PageReads:
    """Of one page, at most one read is under way; requests that arrive meanwhile share the next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[tuple[str, int], asyncio.Future[EncodedPage]] = {}
        self._active: set[tuple[str, int]] = set()

    async def since(self, tenant_id: str, revision: int) -> EncodedPage:
        """The tenant's changes after `revision`. Raises `ReadFault`, and `NotFound` if there is no
        such tenant."""
        key = (tenant_id, revision)
        if key not in self._active:
            # Its first step is a later one of the event loop, so it serves this request too.
            start_task(self._store.group, self._read_while_awaited(key))
            self._active.add(key)
        page = self._waiting.get(key)
        if page is None:
            page = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            # Shielded: a request that is cancelled leaves the page to the others.
            return await asyncio.shield(page)
        except SluiceError as error:
            # A new exception for each: one in several tasks would mix up their traces.
            raise type(error)(error.message) from error

    async def _read_while_awaited(self, key: tuple[str, int]) -> None:
        try:
            while (page := self._waiting.pop(key, None)) is not None:
                # Requests that arrive from here on wait for the next read.
                try:
                    page.set_result(encoded(await self._read(key)))
                except Exception as error:  # noqa: BLE001  each request raises it
                    page.set_exception(error)
                finally:
                    if not page.done():  # the service is stopping
                        page.set_exception(ReadFault())
        finally:
            self._active.discard(key)
            if (page := self._waiting.pop(key, None)) is not None:
                page.set_exception(ReadFault())

    async def _read(self, key: tuple[str, int]) -> documents.ChangePage:
        async with self._store.reading(key[0]) as connection:
            return await documents.since(
                connection, *key, limit=MAX_DOCUMENTS, max_bytes=MAX_PAGE_BYTES
            )
