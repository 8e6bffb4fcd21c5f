"""A record becomes an entry of its tenant's log, durably, before its caller is answered.

    submit -> gathers with others while the batch before commits
           -> one transaction: head row, entries, openings, new head
           -> COMMIT -> every caller is answered

Knows nothing of enforcement points; `ingest` brings theirs.
"""

from sqlalchemy import Connection

from control_api.log.head_cache import Answers, LogHeadCache, place
from control_api.log.head_check import check_heads
from control_api.store.group_commit import GroupCommit
from control_api.store.log.chain import Appended, LogChain, find_appended
from control_api.store.log.heads import LogEnd
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.trail.record import Record

_Asked = tuple[str, Record]


class Log:
    """Every tenant's log, as far as records are made in this service."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends = LogHeadCache(store)
        self._gather: GroupCommit[_Asked, Appended] = GroupCommit(store.group, self._commit)

    @classmethod
    async def open(cls, store: Store) -> "Log":
        """`UnknownState` where a head does not fit the log it is the head of: the service must not
        start, since what it appended would hide what happened."""
        await check_heads(store)
        return cls(store)

    async def append(self, tenant_id: str, record: Record) -> Appended:
        """The record's place, after the commit; the first place again for an id that is there.

        `WriteFault` (503) where it could not be kept, `Invalid` where it is too large, `NotFound`
        where there is no such tenant. A caller that is cancelled takes nothing back.
        """
        return await self._gather.submit(self._store.lane(tenant_id), (tenant_id, record))

    async def _commit(self, lane: str, asked: list[_Asked]) -> list[Appended | SluiceError]:
        tried = await self._ends.append(lane, [record for _, record in asked])
        if tried.answers is not None:
            return tried.answers
        clock = self._store.clock
        answers, ends = await self._store.run(
            lane,
            lambda connection, again: _append(connection, asked, clock, again),
            again=tried.unsure,
        )
        for tenant_id, end in ends.items():
            self._ends.know(tenant_id, end)
        return answers


def _append(
    connection: Connection, asked: list[_Asked], clock: Clock, again: bool
) -> tuple[Answers, dict[str, LogEnd]]:
    """One batch, in the transaction of the caller, and where its logs end then; tenants in order,
    so that two writers of the same tenants can't wait for each other."""
    ends: dict[str, LogEnd] = {}
    answers: list[Appended | SluiceError | None] = [None] * len(asked)
    for tenant_id in sorted({tenant_id for tenant_id, _ in asked}):
        places = [at for at, (tenant, _) in enumerate(asked) if tenant == tenant_id]
        try:
            chain = LogChain.load(connection, tenant_id)
        except SluiceError as error:  # no such tenant: its callers' affair alone
            for at in places:
                answers[at] = error
            continue
        # Only a batch that failed once can hold an id that is in the log: the unique index tells,
        # and then the batch comes here a second time.
        held = (
            find_appended(connection, tenant_id, [asked[at][1].eid for at in places])
            if again
            else {}
        )
        # Every step from here to the commit may be our last: all of it is in one transaction, and a
        # log that lost it is the log as it was. No caller has been answered.
        now = clock.now()
        for at in places:
            answers[at] = _place(chain, asked[at][1], now, held)
        chain.save(connection)
        ends[tenant_id] = chain.end
    return [answer for answer in answers if answer is not None], ends


def _place(
    chain: LogChain, record: Record, now: int, held: dict[str, Appended]
) -> Appended | SluiceError:
    known = held.get(record.eid)
    if known is not None:
        return known
    answer = place(chain, record, now)
    if isinstance(answer, Appended):
        held[record.eid] = answer
    return answer
