"""Appends a record to its tenant's log, durably, before its caller gets an answer.

    append -> waits while the previous batch commits, and others join it
           -> one transaction: head row, entries, openings, counts, new head
           -> COMMIT -> every caller gets its answer

Knows nothing of enforcement points: `ingest` appends their records.
"""

from sqlalchemy import Connection

from control_api.log.head_cache import Answers, LogHeadCache, try_add
from control_api.log.head_check import check_heads
from control_api.store.group_commit import GroupCommit
from control_api.store.log.chain import Appended, LogChain, find_appended
from control_api.store.log.heads import LogEnd
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.trail.record import Record

_TenantRecord = tuple[str, Record]


class Log:
    """Every tenant's log, for the records that this service makes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.heads = LogHeadCache(store)
        self._group_commit: GroupCommit[_TenantRecord, Appended] = GroupCommit(
            store.group, self._commit, self._prepare if self.heads.useful else None
        )

    @classmethod
    async def open(cls, store: Store) -> "Log":
        """Raises `UnknownState` if a head does not match its log. The service must not start then,
        because its appends would bury the evidence."""
        await check_heads(store)
        return cls(store)

    async def append(self, tenant_id: str, record: Record) -> Appended:
        """The record's position, after the commit. An id that the log already holds keeps its first
        position.

        Raises `WriteFault` (503) if it could not be stored, `Invalid` if it is too large,
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
            again=attempted.unsure,
        )
        for tenant_id, end in ends.items():
            self.heads.remember(tenant_id, end)
        return answers


def _append(
    connection: Connection, batch: list[_TenantRecord], clock: Clock, again: bool
) -> tuple[Answers, dict[str, LogEnd]]:
    """Appends a batch in the caller's transaction; returns the answers, and the new ends of the
    logs."""
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
