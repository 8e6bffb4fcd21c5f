"""Records of an enforcement point, into the log exactly once.

Each spool counts its records from 0 without gaps and chains them; here stands, for each
(tenant, source, instance), the last that is held. It moves in the transaction that appends.
Knows nothing of receipts' signatures, nor of who may speak for a source.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from control_api.store.log.chain import LogChain, find_appended
from control_api.store.schema.tables import sources
from control_api.store.store import Store
from policies.ground.canonical import b64
from policies.ground.errors import Conflict, Invalid
from policies.trail.record_fast_path import read
from policies.trail.spool_chain import Spooled


class IngestReceipt(NamedTuple):
    """The last record of the instance that the log holds, and the hash of its core. -1 and empty
    where it holds none."""

    n: int
    hash: bytes


NOTHING_HELD = IngestReceipt(-1, b"")
STRETCH = 64
"""Records read between two turns of the event loop: about a millisecond."""
PART = 256
"""Records written by one statement: placed and encoded in some three milliseconds, without a turn
of the event loop."""


async def ingest(
    store: Store,
    tenant_id: str,
    source: str,
    instance: str,
    payloads: Sequence[object],
    turn: AbstractAsyncContextManager[object] | None = None,
) -> IngestReceipt:
    """What is held after the payloads, known or decoded, in order, were appended.

    Those that are held already are skipped. Either all others are recorded or none is: `Invalid`
    (422) where one is no record of this source, `Conflict` (409) where one does not follow the one
    before it, or what is held; `WriteFault` (503) where the database fails. `turn` is
    held while they are read, so that one batch at a time is.
    """
    records: list[Spooled] = []
    async with turn or nullcontext():
        for at, payload in enumerate(payloads):
            records.append(_read(payload, at, source, instance))
            if at % STRETCH == 0:
                await asyncio.sleep(0)  # a full batch takes its time: let others in between
    for before, record in pairwise(records):
        _follow(IngestReceipt(before.n, before.hash), record)
    return await store.run(
        store.lane(tenant_id),
        lambda connection, again: _ingest(
            connection, tenant_id, source, instance, records, store.clock.now(), again
        ),
    )


def _read(payload: object, at: int, source: str, instance: str) -> Spooled:
    try:
        record = read(payload)
    except Invalid as error:
        raise Invalid(error.message, details=f"records[{at}]: {error.message}") from error
    if record.source != source or record.instance != instance:
        raise Invalid(
            "a record comes from another spool than the batch",
            details=f"records[{at}]: `{record.source}` / `{record.instance}`",
        )
    return record


def _ingest(
    connection: Connection,
    tenant_id: str,
    source: str,
    instance: str,
    records: list[Spooled],
    now: int,
    again: bool,
) -> IngestReceipt:
    # The log's head first: it is what every writer of the tenant waits for, so the counter that is
    # read next can't move under us. Two posts of one batch: the second reads what the first wrote.
    chain = LogChain.load(connection, tenant_id)
    spool = {"tenant": tenant_id, "of_source": source, "of_instance": instance}
    row = connection.execute(_HELD, spool).one_or_none()
    held = NOTHING_HELD if row is None else IngestReceipt(*row)
    fresh = [record for record in records if record.n > held.n]
    _same(held, records[: len(records) - len(fresh)])
    if not fresh:
        return held
    if again:
        _refuse_known(connection, tenant_id, fresh)
    last = held
    for first in range(0, len(fresh), PART):
        for record in fresh[first : first + PART]:
            last = _follow(last, record)
            chain.add_spooled(record, now)
        chain.save(connection)
        chain = LogChain(tenant_id, chain.end)  # ours alone until the commit
    # Not committed yet: if we die here neither entries nor counter have moved, and the enforcement
    # point sends them again. After the commit it may also send them again, having heard nothing:
    # then the counter says that they are here.
    move = {**spool, "to_n": last.n, "to_hash": last.hash, "to_time": now}
    connection.execute(_BEGIN if row is None else _MOVE, move)
    return last


def _same(held: IngestReceipt, skipped: list[Spooled]) -> None:
    """What is skipped must be what is held: each record proves the one before it, so the last one
    does for all. A spool that was copied, and written to in two places, ends here."""
    if not skipped:
        return
    last = skipped[-1]
    if last.n == held.n and last.hash != held.hash:
        raise Conflict(
            f"another record {held.n} of this spool is held",
            details=f"held: hash `{b64(held.hash)}`; came: hash `{b64(last.hash)}`",
        )


def _follow(held: IngestReceipt, record: Spooled) -> IngestReceipt:
    n, prev = record.n, record.prev
    if n != held.n + 1:
        raise Conflict(
            f"record {n} does not follow record {held.n}",
            details=f"held: n {held.n}, hash `{b64(held.hash)}`; came: n {n}, prev `{prev}`",
        )
    if prev != b64(held.hash):
        raise Conflict(
            f"record {n} follows another record {held.n} than the one that is held",
            details=f"held: n {held.n}, hash `{b64(held.hash)}`; came: n {n}, prev `{prev}`",
        )
    return IngestReceipt(n, record.hash)


def _refuse_known(connection: Connection, tenant_id: str, fresh: list[Spooled]) -> None:
    """An id that is in the log and not held of this spool came another way: a copied spool, or an
    id that was not random. Nothing of the batch is taken."""
    known = find_appended(connection, tenant_id, [record.columns.eid for record in fresh])
    for record in fresh:
        eid = record.columns.eid
        if eid in known:
            raise Conflict(
                "a record's id is in the log already, from another source",
                details=f"`{eid}` stands at seq {known[eid].seq}",
            )
    if len({record.columns.eid for record in fresh}) != len(fresh):
        raise Invalid("two records of the batch have the same id")


_KEY = (
    sources.c.tenant_id == bindparam("tenant"),
    sources.c.source == bindparam("of_source"),
    sources.c.instance == bindparam("of_instance"),
)
_HELD = select(sources.c.n, sources.c.hash).where(*_KEY)
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
