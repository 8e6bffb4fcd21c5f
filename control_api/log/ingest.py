"""Appends the records that sidecars spooled to the log, exactly once.

A spool numbers its records from 0 without gaps, and chains them. The table `sources` holds, for
each (tenant, source, instance), the last record that the log has; the transaction that appends
records also moves that row on.

    number the records behind the cached ends, in memory
    one statement: entries, openings, counts; head and spool move from the cached ends

INVARIANT: cached ends are only guesses. The statement writes nothing if the log or the spool is
elsewhere, and then the batch takes the slow path, which reads both (`ingest`). It also takes that
path if anything about the batch is unusual; every refusal happens there.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, bindparam, insert, select, update

from control_api.log.head_cache import LogHeadCache, Spool, SpoolEnd
from control_api.log.judging import Judge
from control_api.store.log.chain import LogChain, LogEnd, find_appended
from control_api.store.log.postgresql_batch import SpoolMove
from control_api.store.queries import sidecar_rows
from control_api.store.queries.sidecar_rows import Acknowledged
from control_api.store.schema.log import sources
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.canonical import b64
from policies.ground.errors import Conflict, Invalid
from policies.trail.record_fast_path import read
from policies.trail.spool_chain import Spooled

MAX_REVISION = 2**53


def advances(records: Sequence[Spooled], first_seq: int, newest: int | None) -> list[Acknowledged]:
    """Return the first record at each policy revision above `newest` that the records show. The
    records get consecutive places in the log, from `first_seq`."""
    # Reads as little of the records as possible: in most batches nothing has advanced, and one
    # record shows that. A source's revision grows, so that of its last record tells whether any is
    # new. It may fall if the sidecar gets another store; what it then acknowledges counts from the
    # old one's end on.
    reached = -1 if newest is None else newest
    last = (revision_of(record) for record in reversed(records))
    if next((revision for revision in last if revision >= 0), -1) <= reached:
        return []
    advanced: list[Acknowledged] = []
    for seq, record in enumerate(records, first_seq):
        revision = revision_of(record)
        if revision > reached:
            advanced.append(Acknowledged(revision, seq, record.columns.ts))
            reached = revision
    return advanced


def revision_of(record: Spooled) -> int:
    """Return the policy set's revision in a decision or a heartbeat; -1 for any other record, or if
    it states no valid one."""
    kind = record.columns.kind
    if kind not in ("decision", "heartbeat"):
        return -1
    pub = orjson.loads(record.members[2])
    revision = (pub["facts"] if kind == "decision" else pub).get("revision", -1)
    # Any key of scope `sidecar` can send any number.
    return revision if type(revision) is int and 0 <= revision < MAX_REVISION else -1


MAX_RECORDS = 1024
"""The most records of a batch that is written in one statement. Larger batches take the slow path,
which writes them part by part."""
STRETCH = 64
"""Records numbered between two turns of the event loop, in less than a millisecond."""


async def append_in_one_statement(
    store: Store, heads: LogHeadCache, spool: Spool, records: list[Spooled]
) -> SpoolEnd | None:
    """Append a batch behind the cached ends, and return the new end of the spool. Returns None if
    the batch is not known to be written; the table `sources` then shows whether it was. The records
    must form a chain by themselves."""
    end = heads.take_spool(spool)
    if end is None or not _follow(records, end):
        return None
    chain = heads.take(spool[0])
    if chain is None or advances(records, chain.end.size, end.newest):
        return None
    now = store.clock.now()
    if not await _number(chain, records, now):
        return None
    last = records[-1]
    chain.move_spool(SpoolMove(*spool[1:], end.n, end.hash, last.n, last.hash, now))
    # If we die here, all of it is written or nothing, and the enforcement point sends the records
    # again: the table then says which.
    if not await store.run_detached(heads.commit(chain)):
        return None
    moved = SpoolEnd(last.n, last.hash, end.newest)
    heads.remember_spool(spool, moved)
    return moved


def _follow(records: list[Spooled], end: SpoolEnd) -> bool:
    if not 0 < len(records) <= MAX_RECORDS:
        return False
    return records[0].n == end.n + 1 and records[0].prev == b64(end.hash)


async def _number(chain: LogChain, records: list[Spooled], now: int) -> bool:
    for at, record in enumerate(records, 1):
        try:
            chain.add_spooled(record, now)
        except Invalid:
            return False
        if at % STRETCH == 0:
            await asyncio.sleep(0)
    return True


class IngestReceipt(NamedTuple):
    """The last record of an instance (one life of a spool) in the log: its number, and the hash of
    its core. They are -1 and empty before the first record."""

    n: int
    hash: bytes
    rejected: tuple[tuple[int, str], ...] = ()
    """Number and reason of each record of the batch that was refused. The log holds these as
    entries of kind `rejected_record`."""


NOTHING_HELD = IngestReceipt(-1, b"")
"""The receipt for an instance of which the log holds no record yet."""
PART = 256
"""Records written by one statement. Numbering and encoding them takes about three milliseconds,
during which the event loop waits."""


async def ingest(  # noqa: PLR0913  # all of it belongs to one batch
    store: Store,
    tenant_id: str,
    source: str,
    instance: str,
    payloads: Sequence[object],
    turn: AbstractAsyncContextManager[object] | None = None,
    heads: LogHeadCache | None = None,
    judge: Judge | None = None,
) -> IngestReceipt:
    """Append decoded payloads, in order, and return the last record that the log then holds.

    Records that the log already holds are skipped. Of the others, all are appended or none; those
    that `judge` refuses are appended as refused. Raises `Conflict` (409) if a record does not
    follow the one before it, `Invalid` (422) if a payload has no place in a spool, or if there is
    no judge and a payload is not a record of this source, `WriteFault` (503) if the database fails.
    `turn` is held while the payloads are parsed, so that only one batch is parsed at a time.
    `heads` saves reading the ends of the log and the spool.
    """
    records: list[Spooled] = []
    async with turn or nullcontext():
        for at, payload in enumerate(payloads):
            records.append(_read(payload, at, (source, instance), judge))
            if at % STRETCH == 0:
                await asyncio.sleep(0)  # parsing a full batch takes long: let other tasks run
    # Check the batch by itself before it takes the lane: a faulty batch must not make other writers
    # wait.
    for before, record in pairwise(records):
        _require_successor(IngestReceipt(before.n, before.hash), record)
    if judge is not None:
        records = await judge.judge(records)
    heads = heads or LogHeadCache(store)
    spool = (tenant_id, source, instance)
    moved = await append_in_one_statement(store, heads, spool, records)
    if moved is not None:
        return IngestReceipt(moved.n, moved.hash, _rejected(records, judge))

    def append(connection: Connection, again: bool) -> tuple[SpoolEnd, LogEnd | None, int]:
        return _ingest(connection, spool, records, store.clock.now(), again, judge)

    held, end, first = await store.run(store.lane(tenant_id), append)
    if end is not None:
        heads.remember(tenant_id, end)
        heads.remember_spool(spool, held)
    fresh = [record for record in records if record.n >= first]
    return IngestReceipt(held.n, held.hash, _rejected(fresh, judge))


def _rejected(records: list[Spooled], judge: Judge | None) -> tuple[tuple[int, str], ...]:
    if judge is None:
        return ()
    refusals = judge.refusals
    return tuple((each.n, str(refusals[each.n])) for each in records if each.n in refusals)


def _read(payload: object, at: int, spool: tuple[str, str], judge: Judge | None) -> Spooled:
    try:
        record = read(payload)
    except Invalid as error:
        fault = Invalid(error.message, details=f"records[{at}]: {error.message}")
        if judge is None:
            raise fault from error
        return judge.unreadable(payload, fault)
    if judge is None and (record.source, record.instance) != spool:
        raise Invalid(
            "a record is from another spool than its batch",
            details=f"records[{at}]: `{record.source}` / `{record.instance}`",
        )
    return record


def _ingest(
    connection: Connection,
    place: Spool,
    records: list[Spooled],
    now: int,
    again: bool,
    judge: Judge | None,
) -> tuple[SpoolEnd, LogEnd | None, int]:
    """Append the batch in one transaction. Returns the new end of the spool, the new end of the log
    (None if it has not grown), and the number of the first record that the log did not hold
    before."""
    tenant_id, source, instance = place
    # Lock the log's head first: every writer of the tenant waits for it, so the counter that is
    # read next can't change. If one batch is posted twice at once, the second post sees the counter
    # that the first has moved.
    chain = LogChain.load(connection, tenant_id)
    spool = {"tenant": tenant_id, "of_source": source, "of_instance": instance}
    row = connection.execute(_HELD, spool).one_or_none()
    held = NOTHING_HELD if row is None else IngestReceipt(row.n, row.hash)
    fresh = [record for record in records if record.n > held.n]
    _check_skipped(held, records[: len(records) - len(fresh)])
    if not fresh:
        return SpoolEnd(held.n, held.hash, None), None, held.n + 1
    # Look up the ids only after a failed first attempt, which may have hit their unique index.
    if again:
        fresh = _refuse_known(connection, tenant_id, fresh, judge)
    first_fresh = held.n + 1
    first_seq, last = chain.end.size, held
    for first in range(0, len(fresh), PART):
        for record in fresh[first : first + PART]:
            last = _require_successor(last, record)
            chain.add_spooled(record, now)
        chain.save(connection)
        chain = LogChain(tenant_id, chain.end)  # the head stays locked until the commit
    newest = (
        sidecar_rows.newest_acknowledged(connection, tenant_id, source)
        if row is None
        else row.newest
    )
    if advanced := advances(fresh, first_seq, newest):
        sidecar_rows.add_acknowledgements(connection, tenant_id, source, advanced)
    # Not committed yet: if we die here, neither entries nor counter have changed, and the
    # enforcement point sends the records again. If we die after the commit, it has no receipt and
    # also sends them again: then the counter shows that they are stored.
    move = {**spool, "to_n": last.n, "to_hash": last.hash, "to_time": now}
    connection.execute(_BEGIN if row is None else _MOVE, move)
    reached = advanced[-1].revision if advanced else newest
    return SpoolEnd(last.n, last.hash, reached), chain.end, first_fresh


def _check_skipped(held: IngestReceipt, skipped: list[Spooled]) -> None:
    """Raise `Conflict` if the records to skip differ from those that the log holds. That happens if
    a spool was copied, and written in two places."""
    if not skipped:
        return
    # Each record commits to the one before it, so comparing the last is enough.
    last = skipped[-1]
    if last.n == held.n and last.hash != held.hash:
        raise Conflict(
            f"the log holds a different record {held.n} of this spool",
            details=f"held: hash `{b64(held.hash)}`; received: hash `{b64(last.hash)}`",
        )


def _require_successor(held: IngestReceipt, record: Spooled) -> IngestReceipt:
    n, prev = record.n, record.prev
    if n == held.n + 1 and prev == b64(held.hash):
        return IngestReceipt(n, record.hash)
    raise Conflict(
        f"record {n} follows a different record {held.n} than the log holds"
        if n == held.n + 1
        else f"record {n} does not follow record {held.n}",
        details=f"held: n {held.n}, hash `{b64(held.hash)}`; received: n {n}, prev `{prev}`",
    )


def _refuse_known(
    connection: Connection, tenant_id: str, fresh: list[Spooled], judge: Judge | None
) -> list[Spooled]:
    """Return the batch with each record refused whose id the log already has: the spool was copied,
    or the id was not random. Without a judge, raise `Conflict` for the whole batch."""
    known = find_appended(connection, tenant_id, [record.columns.eid for record in fresh])
    if judge is not None:
        return judge.refuse_taken(fresh, known)
    for record in fresh:
        eid = record.columns.eid
        if eid in known:
            raise Conflict(
                "the log already has a record with this id, from another source",
                details=f"`{eid}` is at seq {known[eid].seq}",
            )
    if len({record.columns.eid for record in fresh}) != len(fresh):
        raise Invalid("two records of the batch have the same id")
    return fresh


_KEY = (
    of_tenant(sources),
    sources.c.source == bindparam("of_source"),
    sources.c.instance == bindparam("of_instance"),
)
# With the newest revision in the same statement: nearly every batch needs it only to see that
# nothing has advanced.
_HELD = select(
    sources.c.n, sources.c.hash, sidecar_rows.newest_acknowledged_of().label("newest")
).where(*_KEY)
_TO: dict[str, Any] = {
    "n": bindparam("to_n"),
    "hash": bindparam("to_hash"),
    "updated_at": bindparam("to_time"),
}
_MOVE = update(sources).where(*_KEY).values(_TO)
_BEGIN = insert(sources).values(
    tenant_id=bindparam("tenant"),
    source=bindparam("of_source"),
    instance=bindparam("of_instance"),
    **_TO,
)
