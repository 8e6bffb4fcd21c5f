"""Appends a record to its tenant's log, durably, before its caller gets an answer; at startup,
checks that each log's head matches its log.

    append -> waits while the previous batch commits, and others join it
           -> one transaction: head row, entries, openings, counts, new head
           -> COMMIT -> every caller gets its answer

The check of the heads is quick and partial; `verify` is complete. A head whose count differs from
the entries, or that does not follow the last one, means that the database was restored, edited, or
written to by another program. Everything appended to it would be numbered and chained wrongly
forever, so a mismatch is fatal.

Also appends the `change` entries, which record who changed what.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.head_cache import Answers, LogHeadCache, try_add
from control_api.store.errors import UnknownState
from control_api.store.group_commit import GroupCommit
from control_api.store.log.chain import Appended, LogChain, LogEnd, find_appended
from control_api.store.queries.purges import latest_anchor
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.schema.statements import in_span, of_tenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.ground.ids import uuid7
from policies.trail.change import ObjectChange, change_record
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.record import Record

MAX_LEAVES = 64
"""Leaves of the largest subtree that the start-up check recomputes. Of 64 consecutive log sizes, at
most one ends in a larger subtree, and that one is left unchecked."""

PAGE = 500


async def check_heads(store: Store) -> None:
    """Check the head of every log against the log's last entries. Raises `UnknownState`, naming the
    log, if a head does not match."""
    after = ""
    while logs := await _logs(store, after):
        for tenant_id in logs:
            # A snapshot, because another replica may purge entries between two of the reads.
            async with store.snapshot(tenant_id) as connection:
                await _check_head(connection, tenant_id)
        after = logs[-1]


async def _logs(store: Store, after: str) -> Sequence[str]:
    """Return a page of the ids of tenants that have a log: those that follow `after`, in order."""
    query = select(log_heads.c.tenant_id).where(log_heads.c.tenant_id > after)
    async with store.reading_all_tenants() as connection:
        found = await connection.execute(query.order_by(log_heads.c.tenant_id).limit(PAGE))
        return found.scalars().all()


async def _check_head(connection: AsyncConnection, tenant_id: str) -> None:
    row: Any = (await connection.execute(_HEAD, {"tenant": tenant_id})).one()
    log, size, leaf, frontier, top, entry, stored = row
    # These three checks do not read the whole log. They find what a restore or an edit changed at
    # its end, which is where the next append would build on it.
    if (-1 if top is None else top) != size - 1:
        raise UnknownState(f"log `{log}` ends at seq {top}, but its head counts {size} entries")
    if size and not leaf == stored == leaf_hash(entry):
        raise UnknownState(f"the head of log `{log}` does not follow its last entry")
    await _check_frontier(connection, tenant_id, log, size, frontier)


async def _check_frontier(
    connection: AsyncConnection, tenant_id: str, log: str, size: int, frontier: bytes
) -> None:
    try:
        tree = Frontier.from_bytes(size, frontier)
    except ValueError as error:
        raise UnknownState(f"the head of log `{log}` can't be read: {error}") from error
    last = size & -size  # leaves of the smallest complete subtree, which ends at the last entry
    if not 0 < last <= MAX_LEAVES:
        return  # too many leaves to read at every start
    expected, first = await _tree_before(connection, tenant_id, log, size - last)
    leaves = select(log_entries.c.hash).where(*in_span(log_entries)).order_by(log_entries.c.seq)
    wanted = {"tenant": tenant_id, "first": first, "until": size}
    for leaf in (await connection.execute(leaves, wanted)).scalars():
        expected.append(leaf)
    if expected.hashes[-1:] != tree.hashes[-1:]:
        raise UnknownState(f"the frontier of log `{log}` is not that of its last {last} entries")


async def _tree_before(
    connection: AsyncConnection, tenant_id: str, log: str, first: int
) -> tuple[Frontier, int]:
    """Return a tree, and the first entry to append to it in order to recompute the log's last
    subtree. The tree is empty at the start of that subtree; if retention has removed that start, it
    is the tree that the anchor holds."""
    try:
        anchor = await latest_anchor(connection, tenant_id)
        if anchor is None or anchor.purged.size <= first:
            return Frontier(), first
        return anchor.purged.tree(), anchor.purged.size
    except (ValueError, TypeError) as error:
        raise UnknownState(f"the anchor of log `{log}` can't be read: {error}") from error


_TOP = (
    select(func.max(log_entries.c.seq))
    .where(of_tenant(log_entries, log_heads.c.tenant_id))
    .correlate(log_heads)
    .scalar_subquery()
)
_LAST = and_(
    of_tenant(log_entries, log_heads.c.tenant_id), log_entries.c.seq == log_heads.c.size - 1
)
_HEAD = (
    select(
        *log_heads.c["log", "size", "last_leaf", "frontier"], _TOP, *log_entries.c["entry", "hash"]
    )
    .select_from(log_heads.outerjoin(log_entries, _LAST))
    .where(of_tenant(log_heads))
)


_TenantRecord = tuple[str, Record]


class Log:
    """Appends the records that this service makes to the logs of their tenants, in batches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.heads = LogHeadCache(store)
        self._group_commit: GroupCommit[_TenantRecord, Appended] = GroupCommit(
            store.group, self._commit, self._prepare if self.heads.useful else None
        )

    @classmethod
    async def open(cls, store: Store) -> "Log":
        """Check the heads of all logs, and return the `Log`. Raises `UnknownState` if a head does
        not match its log. The service must not start then, because its appends would bury the
        evidence."""
        await check_heads(store)
        return cls(store)

    async def append(self, tenant_id: str, record: Record) -> Appended:
        """Append a record, and return its position in the log after the commit. If the log already
        has a record with this id, return the position of that one.

        Raises `WriteFault` (503) if the record could not be stored, `Invalid` if it is too large,
        `NotFound` if there is no such tenant. Cancelling the caller does not withdraw the record.
        """
        return await self._group_commit.submit(self._store.lane(tenant_id), (tenant_id, record))

    def _prepare(self, _: str, item: _TenantRecord, place: int) -> None:
        tenant_id, record = item
        self.heads.prepare(tenant_id, record, place)

    async def _commit(self, lane: str, batch: list[_TenantRecord]) -> list[Appended | SluiceError]:
        attempted = await self.heads.append(lane, [record for _, record in batch])
        if attempted.answers is not None:
            return attempted.answers
        clock = self._store.clock
        answers, ends = await self._store.run(
            lane,
            lambda connection, again: _append(connection, batch, clock, again),
            again=attempted.may_be_written,
        )
        for tenant_id, end in ends.items():
            self.heads.remember(tenant_id, end)
        return answers


def _append(
    connection: Connection, batch: list[_TenantRecord], clock: Clock, again: bool
) -> tuple[Answers, dict[str, LogEnd]]:
    """Append a batch in the caller's transaction. Returns the answers in the batch's order, and the
    new ends of the logs by tenant."""
    ends: dict[str, LogEnd] = {}
    answers: list[Appended | SluiceError | None] = [None] * len(batch)
    # Sorted, so that two writers of the same tenants lock their heads in the same order and can't
    # deadlock.
    for tenant_id in sorted({tenant_id for tenant_id, _ in batch}):
        places = [at for at, (tenant, _) in enumerate(batch) if tenant == tenant_id]
        try:
            chain = LogChain.load(connection, tenant_id)
        except SluiceError as error:  # no such tenant: only the callers that name it fail
            for at in places:
                answers[at] = error
            continue
        # Only a batch that failed once can hold an id that is already in the log. The unique index
        # detects that on the first try, and `Store.run` then calls this a second time.
        eids = [batch[at][1].eid for at in places]
        held = find_appended(connection, tenant_id, eids) if again else {}
        # We may die at any step from here to the commit. All of it is one transaction, so the log
        # is then as it was before, and no caller has an answer yet.
        now = clock.now()
        for at in places:
            answers[at] = _add(chain, batch[at][1], now, held)
        chain.save(connection)
        ends[tenant_id] = chain.end
    return [answer for answer in answers if answer is not None], ends


def _add(
    chain: LogChain, record: Record, now: int, held: dict[str, Appended]
) -> Appended | SluiceError:
    known = held.get(record.eid)
    if known is not None:
        return known
    answer = try_add(chain, record, now)
    if isinstance(answer, Appended):
        held[record.eid] = answer
    return answer


@dataclass(frozen=True, slots=True)
class Changes:
    """Writes `change` entries into the log, and makes ids for its entries. `entropy(n)` returns n
    random bytes."""

    clock: Clock
    entropy: Callable[[int], bytes]

    def new_id(self) -> str:
        """Return a new UUIDv7, for an event or another log entry."""
        return uuid7(self.clock.now(), self.entropy(10))

    async def record(
        self,
        tx: Transaction,
        what: str,
        target: str,
        by: str,
        detail: dict[str, Any],
        change: ObjectChange,
    ) -> None:
        """Log who changed what, in the transaction of the change: neither is ever stored without
        the other. `detail` and `change` must hold no secret, because the log would keep it."""
        record_id = self.new_id()
        await tx.append(change_record(what, target, by, detail, record_id=record_id, change=change))
