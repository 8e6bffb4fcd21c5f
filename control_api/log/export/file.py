"""Puts an export together: the header, then pages of entries with the documents and checkpoints
that belong to them, then its ending.

Each page is a transaction of its own, and one is read while the one before it is sent. The export
covers the log up to the head as of its start.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection, select

from control_api.log.export.ending import (
    Ending,
    ExportStopped,
    OriginSpan,
    PurgeEntry,
    StoredCheckpoint,
    newest,
    origin_spans,
    shown_purge,
    signing_keys,
)
from control_api.log.export.place import LogPart, Moment, find_part, tree_before
from control_api.log.export.rows import (
    Ahead,
    EntryLines,
    JoinedLines,
    Pace,
    named_digests,
    read_cited,
    read_joined,
    read_rows,
)
from control_api.store import cited_documents
from control_api.store.queries import log_keys
from control_api.store.queries.purges import first_kept
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.ground.signing import KeyRing
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.file import LogFileWriter
from policies.trail.log_file.lines import (
    CheckpointLine,
    FrontierLine,
    HeaderLine,
    PolicyLine,
    TruncatedLine,
)

PAGE_ROWS, PAGE_BYTES = 2000, 4 * 1024 * 1024
"""The most rows of a page, and its target size in bytes. The number of rows follows from how large
the lines of the page before were."""
FIRST_ROWS = 500
DOCUMENTS = 8
"""Documents read at a time. Each may have 1 MiB."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of the log to export: from `first` on and up to `until` (exclusive). None means from
    the oldest kept entry, or to the end of the log. `limit` is the most lines: entries, or
    decisions where only those are exported."""

    first: int | Moment | None = None
    until: int | Moment | None = None
    openings: bool = True
    limit: int | None = None


WhyStop = Callable[[], Awaitable[str | None]]


class _Page(NamedTuple):
    """A page of an export: the lines of the entries up to `until` (exclusive), and a checkpoint of
    exactly `until` entries, if there is one. `kept` is the first entry that no purge had removed
    when the page was read."""

    until: int
    joined: JoinedLines
    checkpoint: StoredCheckpoint | None
    kept: int

    def next_rows(self) -> int:
        if not self.joined.lines:
            return min(FIRST_ROWS, PAGE_ROWS)
        return max(1, min(PAGE_ROWS, PAGE_BYTES * self.joined.joined // len(self.joined.lines)))


class _Checked(NamedTuple):
    """A page's lines, and the documents that no earlier page cites."""

    lines: EntryLines
    documents: list[bytes]


@dataclass(frozen=True, slots=True)
class Export:
    """An export whose range is known. `frontier` is the tree before the first entry, None if the
    log begins with that entry; `start` is a checkpoint of exactly that tree's size, if one was
    kept. `purge` is the `purge` entry that explains why entries before the oldest are missing, None
    if it is in the range or nothing was purged."""

    store: Store
    tenant_id: str
    header: HeaderLine
    spans: list[OriginSpan]
    frontier: FrontierLine | None
    start: CheckpointLine | None
    purge: PurgeEntry | None

    async def pieces(self, why_stop: WhyStop) -> AsyncGenerator[bytes, None]:
        """Yield the file's bytes. `why_stop` is called before each page, and returns a reason to
        stop, or None. Raises `ExportStopped`, after a line with the reason, if it gives one or if a
        purge removes entries that are still to be read; and `ReadFault` if the database does not
        answer."""
        file, pace = LogFileWriter(), Pace(self.store.clock.monotonic)
        opening = (self.header, self.frontier, self.start)
        yield b"".join(file.line(each) for each in opening if each is not None)
        at, sent = self.header.first, set[str]()
        covered = 0 if self.start is None else at
        # Hashing a page takes milliseconds: not on the event loop.
        run = asyncio.get_running_loop().run_in_executor
        try:
            async with Ahead[_Page](self.store.group) as pages:
                pages.start(self._read(at, min(FIRST_ROWS, PAGE_ROWS)))
                while at < self.header.until:
                    pace.begin()
                    page = await pages.take()
                    if reason := await why_stop():
                        raise ExportStopped(f"{reason}; continue with `from={at}`")
                    lines, documents = await self._checked(at, page, sent)
                    if page.until < self.header.until:
                        pages.start(self._read(page.until, page.next_rows()))
                    for body in documents:
                        yield file.line(PolicyLine(body))
                    yield await run(None, file.joined, *lines)
                    if page.checkpoint is not None:
                        yield file.line(CheckpointLine(page.checkpoint.note))
                        covered = page.until
                    at = page.until
                    await pace.rest()
            async for line in self._ending(covered).lines():
                yield file.line(line)
        except ExportStopped as stop:
            yield encode_line(TruncatedLine(str(stop)))
            raise
        yield file.end()

    def _ending(self, covered: int) -> Ending:
        header, spans = self.header, self.spans
        return Ending(self.store, self.tenant_id, header, spans, self.purge, covered)

    async def _read(self, at: int, rows: int) -> _Page:
        """Read the page from entry `at` on, of `rows` entries at most."""
        span = next(each for each in self.spans if each.above <= at < each.most)
        most = min(at + rows, self.header.until, span.most)

        def read(connection: Connection) -> _Page:
            checkpoint = newest(connection, self.tenant_id, span, at, most)
            until = most if checkpoint is None else checkpoint.size
            openings = self.header.with_openings
            joined = read_joined(connection, self.tenant_id, at, until, openings)
            # Read last: a purge commits its anchor before it removes the first row.
            kept = connection.execute(select(first_kept(self.tenant_id))).scalar_one()
            return _Page(until, joined, checkpoint, kept)

        return await self.store.run_reading(self.tenant_id, read)

    async def _checked(self, at: int, page: _Page, sent: set[str]) -> _Checked:
        """Return the page's lines, and the documents that it cites and that are not among those
        already `sent`; add them to `sent`. Raises `ExportStopped` if a purge has removed entries of
        the page."""
        run = asyncio.get_running_loop().run_in_executor
        lines, kept = EntryLines(page.joined.lines, page.joined.found), page.kept
        documents = list[bytes]()
        named = await run(None, named_digests, page.joined)
        if named is None or not named <= sent:
            part = (self.tenant_id, at, page.until)
            async with self.store.reading(self.tenant_id) as connection:
                if named is None:
                    lines = await read_rows(connection, *part, self.header.with_openings)
                # What looks like a new one may be in another kind of entry, or beside the facts.
                wanted = None if named is None else named - sent
                openings = self.header.with_openings
                cited = await run(None, partial(read_cited, lines.lines, wanted, openings=openings))
                new = sorted(cited - sent)
                for first in range(0, len(new), DOCUMENTS):
                    some = new[first : first + DOCUMENTS]
                    found = await cited_documents.by_digests(connection, self.tenant_id, some)
                    documents += found.values()
                kept = (await connection.execute(select(first_kept(self.tenant_id)))).scalar_one()
            sent.update(new)
        if kept > at:
            raise ExportStopped(
                f"retention removed the entries from seq {at} to {kept - 1} before they were "
                "exported: export again"
            )
        return _Checked(lines, documents)


async def open_export(store: Store, tenant_id: str, wanted: Wanted, ring: KeyRing) -> Export:
    """Return an export of the log as it is now. Raises `NotFound` if the log has no entry yet, and
    `Conflict` if it is too damaged to find the range or the tree before it, or if its oldest
    entries are gone without the proof that retention removed them."""
    publics, began = await log_keys.trusted(store, ring), store.clock.now()
    # A snapshot, because a purge may remove entries between two of the reads. What is missing then
    # would be taken for damage.
    async with store.snapshot(tenant_id) as connection:
        part = await find_part(connection, tenant_id, wanted.first, wanted.until)
        log, first, until, anchor = part.log, part.first, part.until, part.anchor
        if wanted.limit is not None:
            until = min(until, first + wanted.limit)
        kept = 0 if anchor is None else anchor.purged.size
        purge = None
        if anchor is not None:
            purge = await shown_purge(connection, tenant_id, log, anchor, publics)
        spans = await origin_spans(connection, tenant_id, log)
        frontier = None
        if first:
            frontier = FrontierLine(first, await tree_before(connection, tenant_id, first))
        start = None
        if anchor is not None and anchor.purged.size == first:
            start = CheckpointLine(anchor.anchor_note)
    async with store.reading_all_tenants() as connection:
        keys = await signing_keys(connection, spans[-1].origin, ring)
    now, ends = rfc3339(store.clock.now()), _has_end(wanted, part, began)
    header = HeaderLine(log, spans[-1].origin, keys, kept, first, until, wanted.openings, now, ends)
    if purge is not None and first <= purge.seq < until:
        purge = None
    return Export(store, tenant_id, header, spans, frontier, start, purge)


def _has_end(wanted: Wanted, part: LogPart, began: int) -> bool:
    """Return whether the log had already reached the requested end when the export began, at
    `began` (microseconds since 1970, UTC). Entries that are recorded later would not be in the file
    anyway."""
    if wanted.limit is not None and part.first + wanted.limit <= part.size:
        return True
    if isinstance(wanted.until, Moment):
        return wanted.until.micros <= began
    return wanted.until is not None and wanted.until <= part.size
