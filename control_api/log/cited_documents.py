"""Removes the documents that no entry can cite any more, after a purge of the log.

A document goes once all of this holds:

    it is no longer in force
    the oldest entry that is kept was recorded more than `LATE` after it was replaced
    no kept entry that was decided less than `LATE` after it was replaced cites it

A sidecar that was cut off delivers late, so an entry may cite a document that was replaced long
before the entry was recorded. The third rule finds those that have arrived. The second is for those
that have not: if a sidecar delivers more than `LATE` after the log's retention, its decisions stay
valid, but can't be derived again.
"""

import re

import orjson
from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store import cited_documents
from control_api.store.cited_documents import ReplacedDocument
from control_api.store.counters.counters import DAY
from control_api.store.log.index import SPAN, indexed_size
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries, log_heads, log_spans
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.canonical import micros

LATE = 30 * DAY
"""In microseconds. It also covers how long a sidecar may decide by a policy set that it can't
refresh, and how far its clock may be wrong."""
AT_ONCE = 100
"""Documents considered in one run; the next purge continues."""
_ROWS = 500
_CITED = re.compile(rb'"(?:role|sources)":"([0-9a-f]{64})"')


async def forget_documents(store: Store, tenant_id: str) -> int:
    """Removes the documents that may go; returns how many did."""
    async with store.reading(tenant_id) as connection:
        due = await _due(connection, tenant_id)
        if not due:
            return 0
        cited = await _cited(connection, tenant_id, due[-1].replaced_at + LATE)
    free, last = [each.digest for each in due if each.digest not in cited], due[-1].replaced_at

    async def work(tx: Transaction) -> int:
        # One that was published again meanwhile stays. One that is published from now on waits for
        # this transaction, which holds the tenant's row, and is then kept anew.
        return await cited_documents.forget_cited(tx.connection, tx.tenant_id, free, last + 1)

    return await store.write(tenant_id, work) if free else 0


async def _due(connection: AsyncConnection, tenant_id: str) -> list[ReplacedDocument]:
    oldest = (await connection.execute(_OLDEST, {"tenant": tenant_id})).scalar_one_or_none()
    if oldest is None:
        return []  # an empty log: a sidecar may still deliver its first records
    before = micros(orjson.loads(oldest)["ts"]) - LATE
    return await cited_documents.replaced_before(connection, tenant_id, before, AT_ONCE)


async def _cited(connection: AsyncConnection, tenant_id: str, until: int) -> set[str]:
    """The digests that kept decisions from before `until` cite."""
    size = (await connection.execute(_SIZE, {"tenant": tenant_id})).scalar_one()
    spans = await connection.execute(_SPANS, {"tenant": tenant_id, "time": until})
    # The last entries have no span yet: all of them are looked at.
    ranges = [*((row.seq, row.until_seq) for row in spans), (indexed_size(SPAN, size), size)]
    found: set[str] = set()
    for first, end in ranges:
        wanted = {"tenant": tenant_id, "first": first, "until": end, "time": until, "rows": _ROWS}
        while rows := (await connection.execute(_DECIDED, wanted)).all():
            for row in rows:
                found.update(digest.decode() for digest in _CITED.findall(row.entry))
            wanted["first"] = rows[-1].seq + 1
    return found


_OF_TENANT = of_tenant(log_entries, bindparam("tenant"))
_OLDEST = (
    select(log_entries.c.entry)
    .where(_OF_TENANT, log_entries.c.seq >= first_kept(log_entries.c.tenant_id))
    .order_by(log_entries.c.seq)
    .limit(1)
)
_SIZE = select(log_heads.c.size).where(of_tenant(log_heads, bindparam("tenant")))
_SPANS = (
    select(log_spans.c.seq, log_spans.c.until_seq)
    .where(of_tenant(log_spans, bindparam("tenant")), log_spans.c.first_ts < bindparam("time"))
    .order_by(log_spans.c.seq)
)
_DECIDED = (
    select(log_entries.c.seq, log_entries.c.entry)
    .where(
        _OF_TENANT,
        log_entries.c.seq >= bindparam("first"),
        log_entries.c.seq < bindparam("until"),
        log_entries.c.kind == "decision",
        log_entries.c.ts < bindparam("time"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
