"""Checks the parts of a log that verification needs besides the entries: the anchor of a purged
log, the counters of the spools, and the completeness of the search index.

Retention is the only way in which a log may lose entries: it takes a note that only the log's key
can sign, and a `purge` entry with the same content. A counter ahead of the log would have sidecars
forget records that the log does not have. Deleting from the index, which no proof covers, would
hide an event from every list; surplus rows do no harm, since a search compares each entry again.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Executable, Row, Select, func, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log import index
from control_api.store.log.index import FACETS, SPAN, block_end, block_rows, indexed_size
from control_api.store.queries.purges import latest_anchor
from control_api.store.schema.log import log_entries, log_index, log_spans, openings, sources
from control_api.store.schema.statements import of_tenant
from policies.ground.canonical import b64, rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.core import record_hash
from policies.trail.findings import Finding, Reason
from policies.trail.removal import PURGE, Anchor
from policies.trail.verify import Verifier
from policies.trail.walk.range_result import ChainEnd, Source


async def read_anchor(
    connection: AsyncConnection, tenant_id: str
) -> tuple[Anchor | None, Finding | None, Finding | None]:
    """Return the log's anchor (the record of its last purge), a fault of the anchor or of the rows
    below it, and a fault of its `purge` entry. Each is None if there is none."""
    anchor = None
    try:
        anchor = await latest_anchor(connection, tenant_id)
        fault = await check_purged_rows(connection, tenant_id, anchor)
        return anchor, fault, await check_purge_entry(connection, tenant_id, anchor)
    except (ValueError, TypeError):
        return anchor, Finding(0, Reason.ANCHOR_INVALID, "the anchor can't be read"), None


async def check_purged_rows(
    connection: AsyncConnection, tenant_id: str, anchor: Anchor | None
) -> Finding | None:
    """Check the rows below the anchor: all must exist until a checkpoint covers the purge, and none
    once it has finished. In between they are being removed, and no reader sees them. Returns a
    finding if one is missing or left, otherwise None."""
    if anchor is None or (anchor.cover_note is not None and anchor.finished_at is None):
        return None
    purged = anchor.purged
    # Openings may be missing at any time, because erasing a person deletes theirs. So before a
    # purge is covered, only its entries must be there.
    for table in (log_entries, openings):
        query = select(func.min(table.c.seq)).where(
            of_tenant(table, tenant_id), table.c.seq < purged.size
        )
        first = (await connection.execute(query)).scalar()
        if anchor.finished_at is not None and first is not None:
            there = f"seq {first}: was purged, but exists"
            return Finding(first, Reason.PURGED_ROW_EXISTS, there)
        if anchor.finished_at is None and table is log_entries:
            due = purged.size - purged.count
            if first != due:
                removed = f"seq {due}: removed before a checkpoint covered its purge"
                return Finding(due, Reason.PURGE_UNCOVERED, removed)
    return None


async def check_purge_entry(
    connection: AsyncConnection, tenant_id: str, anchor: Anchor | None
) -> Finding | None:
    """Check that the entry which the anchor names is the purge's `purge` entry. Only that entry
    distinguishes retention from rows that somebody deleted. The walk through the entries verifies
    its bytes."""
    if anchor is None or await purge_entry(connection, tenant_id, anchor) is not None:
        return None
    other = f"seq {anchor.seq}: is not the `purge` entry of the anchor"
    return Finding(anchor.seq, Reason.PURGE_MISMATCH, other)


async def purge_entry(connection: AsyncConnection, tenant_id: str, anchor: Anchor) -> bytes | None:
    """Return the bytes of the anchor's `purge` entry; None if that entry is missing, or is another
    one."""
    query = select(log_entries.c.entry).where(
        of_tenant(log_entries, tenant_id), log_entries.c.seq == anchor.seq
    )
    raw = (await connection.execute(query)).scalar_one_or_none()
    return raw if isinstance(raw, bytes) and anchor.matches_entry(raw) else None


class AnchorCheck:
    """Checks a log's anchor during one verification; `anchor` is None if nothing was purged.
    `fault` describes a fault of the anchor itself."""

    def __init__(self, anchor: Anchor | None, log: str, publics: Collection[bytes]) -> None:
        self._anchor = anchor
        self._log = log
        self._cover: Checkpoint | None = None
        self.first = 0
        self.fault: Finding | None = None
        if anchor is None:
            return
        fault = anchor.fault(log, publics)
        if fault is not None:
            self.fault = Finding(anchor.seq, Reason.ANCHOR_INVALID, fault)
            return
        self.first = anchor.purged.size
        if anchor.cover_note is not None:
            self._cover = anchor.cover(log, publics)

    def verifier(self, before: Collection[Checkpoint] = ()) -> Verifier:
        """Return a verifier that starts after the purged entries. It expects the checkpoint that
        covers the purge, and the checkpoints in `before`."""
        after = None if self._anchor is None else self._anchor.purged
        verifier = Verifier(self._log, after=after)
        for each in before if self._cover is None else (self._cover, *before):
            verifier.expect(each.size, each.root)
        return verifier

    def check_rows(self, rows: Sequence[Row[Any]]) -> Finding | None:
        """Return a finding if a row is a `purge` entry after the anchor's, because the anchor must
        be the latest."""
        for row in rows:
            if row.kind == PURGE and (self._anchor is None or row.seq > self._anchor.seq):
                unknown = f"seq {row.seq}: a purge that the anchor does not include"
                return Finding(row.seq, Reason.PURGE_MISMATCH, unknown, row.eid)
        return None

    def check_end(self, size: int) -> Finding | None:
        """Return a finding if a log of `size` entries is shorter than the signed checkpoint that
        covers the purge."""
        # A signed size can't be taken back, so entries were removed from the end of the log.
        if self._cover is not None and self._cover.size > size:
            fault = f"a signed checkpoint counts {self._cover.size} entries, the log only {size}"
            return Finding(size, Reason.LOG_BEHIND_CHECKPOINT, fault)
        return None

    def answers(self) -> dict[str, Any]:
        """Return the anchor and the newest signed note in the form that `CONTRACT.md` gives
        (Verification and retention), both None without a valid anchor."""
        anchor = None if self.fault else self._anchor
        if anchor is None:
            return {"anchor": None, "checkpoint": None}
        note = latest_answer(anchor.cover_note or anchor.anchor_note)
        return {"anchor": anchor_answer(anchor), "checkpoint": note}


def latest_answer(note: str) -> dict[str, Any] | None:
    """Return a note in the form that `CONTRACT.md` gives (Verification and retention), None if it
    can't be read."""
    try:
        at = checkpoint.unverified(note)
    except BadNote:
        return None
    return {"size": at.size, "root_hash": at.root.hex(), "note": note}


def anchor_answer(anchor: Anchor) -> dict[str, Any]:
    """Return the anchor in the form that `CONTRACT.md` gives (Verification and retention)."""
    purged = anchor.purged
    return {
        "last_seq": purged.size - 1,
        "last_hash": purged.last_leaf.hex(),
        "tree_size": purged.size,
        "root_hash": purged.root.hex(),
        "purged_count": purged.count,
        "purged_before": rfc3339(purged.cutoff),
        "purged_at": rfc3339(anchor.purged_at),
    }


class SpoolEnds:
    """Collects the last record of each spool from the log's entries, which may come in any
    order."""

    def __init__(self) -> None:
        self.ends: dict[Source, ChainEnd] = {}

    def see(self, entry: dict[str, Any]) -> None:
        """Take a decoded entry into account. Raises `ValueError`, `TypeError` or `LookupError` if
        its place in a spool can't be read."""
        src = entry.get("src")
        if src is None:
            return
        source = src["id"].encode(), src["inst"].encode()
        known = self.ends.get(source)
        # Hashed only if it is the newest so far: from the newest on, once for each spool.
        if known is None or src["n"] > known[0]:
            self.ends[source] = src["n"], b64(record_hash(entry)).encode()


async def counters(connection: AsyncConnection, tenant_id: str) -> Sequence[Row[Any]]:
    """Return each spool's counter: the number and hash of the last record that the log should hold.
    Read the counters before the head, because a counter moves together with its entries."""
    columns = sources.c["source", "instance", "n", "hash"]
    query: Select[Any] = select(*columns).where(of_tenant(sources, tenant_id))
    rows: Sequence[Row[Any]] = (await connection.execute(query)).all()
    return rows


def find_ahead(
    rows: Sequence[Row[Any]], ends: Mapping[Source, ChainEnd], size: int, *, purged: bool
) -> Finding | None:
    """Return a finding if a spool's counter is ahead of the spool's last record among `size`
    entries, or names a different record at that number. `purged` says that earlier records may have
    been removed."""
    for row in rows:
        end = ends.get((str(row.source).encode(), str(row.instance).encode()))
        if end is None and purged:
            continue
        n, hashed = (-1, b"") if end is None else end
        if not _fits(row, n, hashed):
            ahead = (
                f"the counter of spool `{row.source:.80}` `{row.instance:.80}` holds a record "
                f"{row.n}, and its last one in the log is {n}"
            )
            return Finding(size, Reason.SOURCE_GAP, ahead)
    return None


def _fits(row: Row[Any], n: int, hashed: bytes) -> bool:
    try:
        # Behind is no fault: what was appended since these were read has moved them on.
        return bool(row.n < n or (row.n == n and b64(row.hash).encode() == hashed))
    except TypeError:  # SQLite does not enforce column types
        return False


_Span = tuple[int, int, int]  # a block's end, its earliest and its latest time


async def find_unindexed(
    connection: AsyncConnection, tenant_id: str, first: int, until: int, size: int
) -> Finding | None:
    """Return a finding for the first entry from `first` up to `until` (exclusive) that the index of
    a log of `size` entries should hold but does not; None if all are indexed."""
    due = {f"until_{place}": min(until, indexed_size(place, size)) for place in range(len(FACETS))}
    wanted = {"tenant": tenant_id, "first": first, "step": index.STEP, **due}
    arrays = connection.dialect.name == "postgresql"
    query: Executable = _MISSING_FROM_ARRAYS if arrays else _MISSING
    missing = (await connection.execute(query, wanted)).first()
    if missing is None:
        return None
    name = FACETS[missing.facet]
    missed = f"seq {missing.seq}: missing from the index of `{name}`"
    return Finding(missing.seq, Reason.INDEX_INCOMPLETE, missed)


class SpanCheck:
    """Checks the index of times, which stores the earliest and latest time of each block of entries
    (its span). Collects these times from the entries from `first` up to `until` (exclusive) of a
    log of `size`, and compares them with the stored spans."""

    def __init__(self, first: int, until: int, size: int) -> None:
        self._first = first
        self._due = min(until, indexed_size(SPAN, size))
        self._times: dict[int, tuple[int, int]] = {}

    def feed(self, rows: Sequence[Row[Any]]) -> None:
        for row in rows:
            first = indexed_size(SPAN, row.seq)  # where the entry's block begins
            low, high = self._times.get(first, (row.ts, row.ts))
            self._times[first] = (min(low, row.ts), max(high, row.ts))

    async def fault(self, connection: AsyncConnection, tenant_id: str) -> Finding | None:
        query = select(log_spans).where(of_tenant(log_spans, tenant_id))
        rows = (await connection.execute(query)).all()
        stored = {row.seq: (row.until_seq, row.first_ts, row.last_ts) for row in rows}
        for first, times in self._times.items():
            until = block_end(SPAN, first)
            fits = span_fits((until, *times), stored.get(first), divided=first < self._first)
            if until <= self._due and not fits:
                wrong = f"seq {first}: the index of times is wrong from here on"
                return Finding(first, Reason.INDEX_INCOMPLETE, wrong)
        return None


def span_fits(expected: _Span, stored: _Span | None, *, divided: bool) -> bool:
    """Return whether the stored span of a block is right. If a purge has `divided` the block, its
    stored span may be wider."""
    if stored is None or not divided:
        return stored == expected
    # The span of a divided block may still include the times of removed entries.
    try:
        return stored[0] == expected[0] and stored[1] <= expected[1] and expected[2] <= stored[2]
    except TypeError:  # SQLite does not enforce column types
        return False


def _unindexed(place: int, name: str) -> Select[Any]:
    entry = block_rows(name, until=f"until_{place}").subquery()
    row = (
        select(log_index.c.seq)
        .where(
            of_tenant(log_index, entry.c.tenant_id),
            log_index.c.facet == place,
            log_index.c.value == entry.c.value,
            log_index.c.seq == entry.c.seq,
        )
        .limit(1)
        .scalar_subquery()
    )
    return select(entry.c.facet, entry.c.seq).where(row.is_(None))


def _unindexed_in_arrays(place: int, name: str) -> str:
    """Return the query of `_unindexed` as PostgreSQL needs it, where an index row may name several
    entries."""
    table = "openings" if name == "user_id" else "log_entries"
    # OFFSET 0: a look-up for each value. PostgreSQL would turn it into a join otherwise, which may
    # read the whole index for every page.
    return (
        f"(WITH entry AS (SELECT {name} AS value, seq FROM {table}"  # noqa: S608  # constants only
        f" WHERE tenant_id = :tenant AND seq >= :first AND seq < :until_{place}"
        f" AND {name} IS NOT NULL),"
        " indexed AS (SELECT each.value, named.seq + distance AS seq"
        " FROM (SELECT DISTINCT value FROM entry) AS each,"
        f" LATERAL (SELECT seq, more FROM log_index WHERE tenant_id = :tenant AND facet = {place}"
        " AND value = each.value AND seq > CAST(:first AS bigint) - :step"
        f" AND seq < :until_{place} OFFSET 0) AS named,"
        " LATERAL unnest(array_prepend(0::smallint, named.more)) AS distance)"
        f" SELECT {place} AS facet, missing.seq FROM"
        " (SELECT value, seq FROM entry EXCEPT SELECT value, seq FROM indexed) AS missing LIMIT 1)"
    )


_MISSING = union_all(*(_unindexed(place, name) for place, name in enumerate(FACETS))).limit(1)
_MISSING_FROM_ARRAYS = text(
    " UNION ALL ".join(_unindexed_in_arrays(place, name) for place, name in enumerate(FACETS))
)
