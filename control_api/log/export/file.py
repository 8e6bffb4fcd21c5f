"""Puts an export together: the header, then pages of entries with the documents and checkpoints
that belong to them, then its ending.

Each page is a transaction of its own, so a slow reader keeps nothing open in the database. Memory
holds one page. The export covers the log up to the head as of its start. Knows no HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.export.ending import Ending, ExportStopped
from control_api.log.export.pace import rest
from control_api.log.export.place import first_recorded, tree_before
from control_api.log.export.rows import EntryLines, read_lines
from control_api.log.export.signatures import (
    OriginSpan,
    StoredCheckpoint,
    newest,
    origin_spans,
    signing_keys,
)
from control_api.store.queries import cited_documents
from control_api.store.queries.purges import first_kept, latest_anchor
from control_api.store.schema.log import log_heads
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound
from policies.ground.signing import KeyRing
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.lines import (
    CheckpointLine,
    FrontierLine,
    HeaderLine,
    PolicyLine,
    TruncatedLine,
)
from policies.trail.log_file.writer import LogFileWriter

PAGE_ROWS = 1000
DOCUMENTS = 8
"""Documents read at a time: each may have 1 MiB."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A recording time, in microseconds since 1970 UTC."""

    micros: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to export: from `first` on and up to `until`, exclusive; None is the oldest entry that
    is kept, and the end of the log."""

    first: int | Moment | None = None
    until: int | Moment | None = None
    openings: bool = True


WhyStop = Callable[[], Awaitable[str | None]]


class _Page(NamedTuple):
    """Entries up to `until`, exclusive; the documents that they are the first to cite; and a
    checkpoint of just `until` entries, if there is one."""

    until: int
    entries: EntryLines
    documents: list[bytes]
    checkpoint: StoredCheckpoint | None


@dataclass(frozen=True, slots=True)
class Export:
    """One export, whose range is known. `frontier` is the tree before the first entry, None if the
    log begins with it; `start` is a checkpoint of just that size, if one was kept."""

    store: Store
    tenant_id: str
    header: HeaderLine
    spans: list[OriginSpan]
    frontier: FrontierLine | None
    start: CheckpointLine | None

    async def pieces(self, why_stop: WhyStop) -> AsyncGenerator[bytes, None]:
        """The file's bytes. `why_stop` is asked before each page, and gives a reason to stop, or
        None. Raises `ExportStopped`, after a line with the reason, then and if a purge removes
        entries that are still to be read; and `ReadFault` if the database does not answer."""
        file = LogFileWriter()
        opening = (self.header, self.frontier, self.start)
        yield b"".join(file.line(each) for each in opening if each is not None)
        at, sent = self.header.first, set[str]()
        # Hashing a page takes about a millisecond: not on the event loop.
        run = asyncio.get_running_loop().run_in_executor
        while at < self.header.until:
            started = self.store.clock.monotonic()
            try:
                if reason := await why_stop():
                    raise ExportStopped(f"{reason}; continue with `from={at}`")
                page = await self._page(at, sent)
            except ExportStopped as stop:
                yield encode_line(TruncatedLine(str(stop)))
                raise
            sent |= page.entries.cited
            for body in page.documents:
                yield file.line(PolicyLine(body))
            yield await run(None, file.joined, page.entries.lines, page.entries.rows)
            if page.checkpoint is not None:
                yield file.line(CheckpointLine(page.checkpoint.note))
            at = page.until
            await rest(self.store.clock.monotonic() - started)
        try:
            async for line in Ending(self.store, self.tenant_id, self.header, self.spans).lines():
                yield file.line(line)
        except ExportStopped as stop:
            yield encode_line(TruncatedLine(str(stop)))
            raise
        yield file.end()

    async def _page(self, at: int, sent: set[str]) -> _Page:
        """The page from `at` on. `sent` are the documents that are in the file already. Raises
        `ExportStopped` if a purge has removed entries of it."""
        span = next(each for each in self.spans if each.above <= at < each.most)
        until = min(at + PAGE_ROWS, self.header.until, span.most)
        async with self.store.reading(self.tenant_id) as connection:
            checkpoint = await newest(connection, self.tenant_id, span, at, until)
            until = until if checkpoint is None else checkpoint.size
            page = await read_lines(
                connection, self.tenant_id, at, until, self.header.with_openings, sent
            )
            new = sorted(page.cited)
            documents = list[bytes]()
            for first in range(0, len(new), DOCUMENTS):
                part = new[first : first + DOCUMENTS]
                found = await cited_documents.by_digests(connection, self.tenant_id, part)
                documents += found.values()
            # Read last: a purge commits its anchor before it removes the first row.
            kept = (await connection.execute(select(first_kept(self.tenant_id)))).scalar_one()
        if kept > at:
            raise ExportStopped(
                f"retention removed the entries from seq {at} to {kept - 1} before they were "
                "exported: export again"
            )
        return _Page(until, page, documents, checkpoint)


async def open_export(store: Store, tenant_id: str, wanted: Wanted, ring: KeyRing) -> Export:
    """An export of the log as it is now. Raises `NotFound` if the log has no entry yet, and
    `Conflict` if it is too damaged to find the range or the tree before it."""
    async with store.reading(tenant_id) as connection:
        head = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
        if head is None:
            raise NotFound("the log has no entry yet")
        anchor = await latest_anchor(connection, tenant_id)
        kept = 0 if anchor is None else anchor.purged.size
        first = await _seq(connection, tenant_id, wanted.first or kept, kept, head.size)
        end = head.size if wanted.until is None else wanted.until
        until = max(first, await _seq(connection, tenant_id, end, kept, head.size))
        spans = await origin_spans(connection, tenant_id, head.log)
        frontier = None
        if first:
            frontier = FrontierLine(first, await tree_before(connection, tenant_id, first))
        start = None
        if anchor is not None and anchor.purged.size == first:
            start = CheckpointLine(anchor.anchor_note)
    async with store.reading_all_tenants() as connection:
        keys = await signing_keys(connection, spans[-1].origin, ring)
    now = rfc3339(store.clock.now())
    header = HeaderLine(head.log, spans[-1].origin, keys, kept, first, until, wanted.openings, now)
    return Export(store, tenant_id, header, spans, frontier, start)


async def _seq(
    connection: AsyncConnection, tenant_id: str, bound: int | Moment, kept: int, size: int
) -> int:
    """A bound as a `seq` from `kept` to `size`."""
    if isinstance(bound, Moment):
        return await first_recorded(connection, tenant_id, kept, size, bound.micros)
    return min(max(bound, kept), size)


_HEAD = select(log_heads.c.log, log_heads.c.size).where(
    log_heads.c.tenant_id == bindparam("tenant")
)
