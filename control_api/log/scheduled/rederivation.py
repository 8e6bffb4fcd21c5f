"""Derives the decisions of a log again from their recorded facts, while the scheduled verification
walks over it.

    Derivations.at    the derivation of a log as far as its verification has come
    follow(rows)      derive the decisions of rows that were just verified
    finding(before)   the first decision that differs: found now, or in an earlier step

A decision that doesn't follow from its facts is a finding, but the log around it verifies: the walk
goes on.

The policy set in force is known from the log's `change` entries, and those are few, so any process
can continue where another one stopped, and no state has to be stored. What is only compared (facts
of one revision, owners of sessions) begins anew there. Verifies no hash, and writes nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
from sqlalchemy import Row, bindparam, select, text

from control_api.store import cited_documents
from control_api.store.queries.leases import SelfCheck
from control_api.store.schema.log import log_entries
from control_api.store.schema.statements import in_span, of_tenant
from control_api.store.store import Store
from policies.ground.canonical import micros
from policies.trail.entry import time_of
from policies.trail.findings import DERIVED, Finding, Reason
from policies.trail.recompute.document_history import unkept_until
from policies.trail.recompute.facts import cited_digests
from policies.trail.recompute.recomputer import RecomputeCounts, Recomputer

PAGE_ROWS = 250
HELD = 16
"""The number of logs whose derivation stays in memory between their steps. For others, the changes
are read again."""
_READ = ("decision", "change", "incarnation")
_NO_END = 2**62
_NO_CHANGE = {"kind": "incarnation"}


class Rederivation:
    """Derives the decisions of one log again, in one walk from entry `first` on, which is where the
    log begins. `cutoff` is the time (microseconds) before which entries were purged, 0 if none
    were; `size` is how far the walk has come. `pause` is the time in seconds that other tasks get
    after each page of changes."""

    def __init__(self, store: Store, tenant_id: str, first: int, cutoff: int, pause: float) -> None:
        self.first = self.size = first
        self._cutoff, self._pause = cutoff, pause
        self._found: Finding | None = None
        self._unkept: int | None = None
        self._store = store
        self._tenant_id = tenant_id
        self._documents: dict[str, bytes] = {}
        self._absent: set[str] = set()
        self._recomputer = Recomputer(self._documents.get)

    def take_counts(self) -> RecomputeCounts:
        """Return the counts of how derivations ended since the counts were last taken, and reset
        them."""
        return self._recomputer.take_counts()

    async def advance(self, size: int) -> None:
        """Begin a step at `size`: read the changes before it, which an earlier step verified."""
        self._found = self._unkept = None
        self._absent.clear()
        if self.size < size:
            async for change in self._changes(self.size, size):
                self._recomputer.feed(change)
            self.size = size

    async def follow(self, rows: Sequence[Row[Any]]) -> None:
        """Derive the decisions among the next rows, which the verifier has accepted."""
        entries = [orjson.loads(row.entry) for row in rows if row.kind in _READ]
        await self._fetch_documents(entries)
        for entry in entries:
            found = self._recomputer.feed(entry)
            if found is not None and self._found is None and not await self._excused(found, entry):
                self._found = found._replace(message=f"seq {found.seq}: {found.message}")
        self.size = rows[-1].seq + 1

    async def _excused(self, found: Finding, entry: dict[str, Any]) -> bool:
        """Return whether the log explains why a decision lacks its document. Either a purge removed
        the entries of its time, and a sidecar delivered it late, when the document had gone with
        them; or a version of the product that kept no documents replaced it."""
        if found.reason is not Reason.DOCUMENT_MISSING:
            return False
        if "src" in entry and micros(entry["src"]["t"]) < self._cutoff:
            return True
        if self._unkept is None:
            self._unkept = await self._unkept_until()
        return micros(time_of(entry)) < self._unkept

    async def _unkept_until(self) -> int:
        """Return the time until which decisions may lack their documents, according to the changes
        of the whole log: the change that replaced a document comes behind the decisions that cite
        it."""
        until = 0
        async for change in self._changes(self.first, _NO_END):
            until = max(until, unkept_until(change))
        return until

    async def _changes(self, first: int, end: int) -> AsyncIterator[dict[str, Any]]:
        """Yield the `change` and `incarnation` entries from `first` up to `end` (exclusive)."""
        more = True
        while more:
            page = {"tenant": self._tenant_id, "first": first, "until": end, "n": PAGE_ROWS}
            async with self._store.reading(self._tenant_id) as connection:
                rows = (await connection.execute(_CHANGES, page)).all()
            for row in rows:
                yield _change(row.entry)
                first = row.seq + 1
            more = len(rows) == PAGE_ROWS
            await asyncio.sleep(self._pause)

    async def finding(self, before: SelfCheck) -> Finding | None:
        """Return the first decision that differs, among those of this step and the one that an
        earlier step reported. The earlier one no longer counts if this step walked past it.
        `before` is the state at the start of the step."""
        code, _, message = (before.reason or "").partition(": ")
        if code not in DERIVED:
            return self._found
        wanted = {"tenant": self._tenant_id, "eid": before.broken_at}
        async with self._store.reading(self._tenant_id) as connection:
            seq = await connection.scalar(_PLACE, wanted)
        if seq is None or before.size <= seq < self.size:
            return self._found
        found = self._found
        if found is not None and found.seq is not None and found.seq < seq:
            return found
        return Finding(seq, Reason(code), message, before.broken_at)

    async def _fetch_documents(self, entries: Sequence[dict[str, Any]]) -> None:
        """Read the documents that these entries cite and that the recomputer hasn't compiled yet.
        They are dropped with the next rows, since each may have 1 MiB."""
        self._documents.clear()
        decisions = [each for each in entries if each["kind"] == "decision"]
        cited = {digest for each in decisions for digest in cited_digests(each)}
        missing = {digest for digest in cited if not self._recomputer.has_document(digest)}
        missing -= self._absent
        if missing:
            async with self._store.reading(self._tenant_id) as connection:
                found = await cited_documents.by_digests(connection, self._tenant_id, missing)
            self._documents.update(found)
            # Asked for once in a step, which also bounds how many there are.
            self._absent |= missing - found.keys()


class Derivations:
    """The derivations of one store's logs. Those used last stay in memory."""

    def __init__(self, store: Store, pause: float) -> None:
        """Keep the derivations of `store`'s logs. `pause` is the time in seconds that other tasks
        get after each page of changes."""
        self._store, self._pause = store, pause
        self._held: OrderedDict[str, Rederivation] = OrderedDict()

    async def at(self, tenant_id: str, first: int, size: int, cutoff: int) -> Rederivation:
        """Return the `Rederivation` of a log whose first entry is `first`, after it has taken in
        the changes before entry `size`: the one that is in memory, or a new one if there is none or
        a round or a purge begins. `cutoff` is as in `Rederivation`. It is taken out of memory until
        `hold` puts it back, so a step that fails leaves none."""
        held = self._held.pop(tenant_id, None)
        if held is None or held.first != first or held.size > size or size == first:
            held = Rederivation(self._store, tenant_id, first, cutoff, self._pause)
        await held.advance(size)
        return held

    def hold(self, tenant_id: str, derivation: Rederivation) -> None:
        self._held[tenant_id] = derivation
        if len(self._held) > HELD:
            self._held.popitem(last=False)

    def forget(self, tenant_id: str) -> None:
        """Drop a log's derivation, because some rows were missing from those that it has read."""
        self._held.pop(tenant_id, None)


def stopped(state: SelfCheck) -> bool:
    """Return whether the walk stays before its finding, rather than going on. Only findings about
    derived decisions let it go on."""
    return state.reason is not None and state.reason.partition(": ")[0] not in DERIVED


def _change(raw: bytes) -> dict[str, Any]:
    """Decode a change entry that was verified before. If it was damaged since, return an entry that
    makes all state before it unknown, as an incarnation does; the next round's walk over the bytes
    reports the damage."""
    try:
        entry = orjson.loads(raw)
        return entry if isinstance(entry, dict) and "pub" in entry else _NO_CHANGE
    except ValueError:
        return _NO_CHANGE


_CHANGES = (
    select(log_entries.c.seq, log_entries.c.entry)
    .where(
        *in_span(log_entries),
        # In the words of the index of rare kinds: otherwise no database uses it.
        text("kind IN ('change', 'incarnation') AND kind NOT IN ('decision', 'lineage')"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("n"))
)
_PLACE = select(log_entries.c.seq).where(
    of_tenant(log_entries), log_entries.c.eid == bindparam("eid")
)
