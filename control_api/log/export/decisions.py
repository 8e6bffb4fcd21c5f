"""Exports a log's decisions as the lines of another format, page by page, in the log's order.

Each page is a transaction of its own, and one is read while the one before it is sent. The export
ends early rather than give a wrong line or leave one out silently: at an entry that does not match
its hash, at a gap, and if a purge removes what was still to be read.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Row, func, select

from control_api.log.export.ending import ExportStopped
from control_api.log.export.file import Wanted, WhyStop
from control_api.log.export.place import find_part
from control_api.log.export.rows import Ahead, Pace
from control_api.log.formats import AuditEvent, Format
from control_api.log.search import EVERY_EVENT, EventFilters, events_of, matching
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import entries_with_openings, log_entries, openings
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.trail.entry import audit_event
from policies.trail.merkle_tree import leaf_hash

PAGE_ENTRIES, PAGE_BYTES = 2000, 4 * 1024 * 1024
"""The most entries of a page, and the size in bytes at which it ends."""
STRETCH = 64
"""Decisions formatted at a time in a thread. That takes less than a millisecond, during which the
event loop may have to wait for the interpreter's lock."""


class DecisionPage(NamedTuple):
    """A page of decisions: `rows` are the `(seq, entry, hash, openings)` of those among the entries
    up to `until` (exclusive). `missing` is the first entry that has no row, if any; `kept` is the
    first entry that no purge had removed when the page was read."""

    until: int
    rows: Sequence[Row[Any]]
    missing: int | None
    kept: int


def read_decisions(
    connection: Connection, tenant_id: str, at: int, until: int, filters: EventFilters = EVERY_EVENT
) -> DecisionPage:
    """Read the page from entry `at` on that ends before `until`, or earlier if it is full. `until`
    is at most the log's size."""
    until = min(until, at + PAGE_ENTRIES)
    there = of_tenant(log_entries, tenant_id), log_entries.c.seq >= at
    size = func.length(log_entries.c.entry) + func.coalesce(func.length(openings.c.openings), 0)
    sizes = (
        select(log_entries.c.seq, size.label("size"))
        .select_from(entries_with_openings)
        .where(*there, log_entries.c.seq < until)
        .order_by(log_entries.c.seq)
    )
    end, weight, missing = at, 0, None
    for row in connection.execute(sizes):
        if row.seq != end or weight >= PAGE_BYTES:
            break
        end, weight = end + 1, weight + row.size
    if end < until and weight < PAGE_BYTES:
        missing = end
    found = events_of(tenant_id).where(log_entries.c.seq >= at, log_entries.c.seq < end)
    found = found.where(*matching(filters)).order_by(log_entries.c.seq)
    rows = connection.execute(found).all()
    # Read last: a purge commits its anchor before it removes the first row.
    kept = connection.execute(select(first_kept(tenant_id))).scalar_one()
    return DecisionPage(end, rows, missing, kept)


def read_event(row: Row[Any], *, opened: bool = True) -> AuditEvent:
    """Return the event of a row, without the content of its openings unless `opened`. Raises
    `ExportStopped` if the entry does not match its hash."""
    try:
        if leaf_hash(row.entry) == row.hash:
            return audit_event(orjson.loads(row.entry), row.hash, row.openings if opened else None)
    except (ValueError, TypeError, LookupError, AttributeError):
        pass
    raise ExportStopped(
        f"entry {row.seq} is damaged: verify the log; `from={row.seq + 1}` leaves it out"
    )


@dataclass(frozen=True, slots=True)
class DecisionExport:
    """An export of the matching decisions among the entries from `first` up to `until` (exclusive),
    at most `limit` of them."""

    store: Store
    tenant_id: str
    form: Format
    first: int
    until: int
    limit: int | None
    opened: bool
    filters: EventFilters

    async def pieces(self, why_stop: WhyStop) -> AsyncGenerator[bytes, None]:
        """Yield the lines as bytes. `why_stop` is called before each page, and returns a reason to
        stop, or None. Raises `ExportStopped` if it gives a reason or if a line can't be given; and
        `ReadFault` if the database does not answer."""
        if self.form.header:
            yield self.form.header
        left = self.until - self.first if self.limit is None else self.limit
        at, pace = self.first, Pace(self.store.clock.monotonic)
        run = asyncio.get_running_loop().run_in_executor
        async with Ahead[DecisionPage](self.store.group) as pages:
            pages.start(self._read(at))
            while at < self.until:
                pace.begin()
                page = await pages.take()
                if reason := await why_stop():
                    raise ExportStopped(f"{reason}; continue with `from={at}`")
                if page.kept > at:
                    raise ExportStopped(
                        f"retention removed the entries from seq {at} to {page.kept - 1} before "
                        "they were exported"
                    )
                rows = page.rows[:left]
                at, left = page.until, left - len(rows)
                more = left > 0 and at < self.until
                if more and page.missing is None:
                    pages.start(self._read(at))
                for begin in range(0, len(rows), STRETCH):
                    lines, fault = await run(None, self._lines, rows[begin : begin + STRETCH])
                    yield lines
                    if fault is not None:
                        raise fault
                if not more:
                    return
                if page.missing is not None:
                    raise ExportStopped(f"entry {page.missing} is missing: verify the log")
                await pace.rest()

    async def _read(self, at: int) -> DecisionPage:
        return await self.store.run_reading(
            self.tenant_id,
            lambda connection: read_decisions(
                connection, self.tenant_id, at, self.until, self.filters
            ),
        )

    def _lines(self, rows: Sequence[Row[Any]]) -> tuple[bytes, ExportStopped | None]:
        """Return the lines of the rows up to the first that can't be given, and the error of that
        one."""
        encode, end, lines = self.form.encode, self.form.end, list[bytes]()
        try:
            for row in rows:
                lines.append(encode(read_event(row, opened=self.opened), self.tenant_id) + end)
        except ExportStopped as stop:
            return b"".join(lines), stop
        return b"".join(lines), None


async def open_decisions(
    store: Store, tenant_id: str, wanted: Wanted, form: Format, filters: EventFilters = EVERY_EVENT
) -> DecisionExport:
    """Return an export of the decisions in the log as it is now that match all filters. Raises like
    `open_export`."""
    async with store.reading(tenant_id) as connection:
        part = await find_part(connection, tenant_id, wanted.first, wanted.until)
    return DecisionExport(
        store, tenant_id, form, part.first, part.until, wanted.limit, wanted.openings, filters
    )
