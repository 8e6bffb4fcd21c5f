"""Appends a batch of a spool's records in one statement, if this process knows the ends of both the
log and the spool: it appended the batches before.

    number the records behind the cached ends, in memory
    one statement: entries, openings, counts; head and spool move from the cached ends

INVARIANT: cached ends are only guesses. The statement writes nothing if the log or the spool is
elsewhere, and then the batch takes the slow path, which reads both (`control_api.log.ingest`). It
also takes that path if anything about the batch is unusual; what is refused, is refused there.
"""

import asyncio

from control_api.log.head_cache import LogHeadCache, Spool, SpoolEnd
from control_api.log.policy_set.acknowledged import advances
from control_api.store.log.chain import LogChain
from control_api.store.log.postgresql_batch import SpoolMove
from control_api.store.store import Store
from policies.ground.canonical import b64
from policies.ground.errors import Invalid
from policies.trail.spool_chain import Spooled

MAX_RECORDS = 1024
"""Larger batches take the slow path, which writes them part by part."""
STRETCH = 64
"""Records numbered between two turns of the event loop, in less than a millisecond."""


async def append_in_one_statement(
    store: Store, heads: LogHeadCache, spool: Spool, records: list[Spooled]
) -> SpoolEnd | None:
    """The new end of the spool. None if the batch is not known to be written: whether it was shows
    in the table `sources`. The records must be a chain of their own."""
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
    """Whether all records fit into entries."""
    for at, record in enumerate(records, 1):
        try:
            chain.add_spooled(record, now)
        except Invalid:
            return False
        if at % STRETCH == 0:
            await asyncio.sleep(0)
    return True
