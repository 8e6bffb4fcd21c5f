"""Caches the ends of the logs that this process appended to most recently, so that the next batch
need not read the head. On PostgreSQL an append is then one statement, one round trip and one
commit.

INVARIANT: a cached head is only a guess. The statement moves the head from the cached size and
leaf, and writes nothing if the head is elsewhere. Then another writer was faster, and the slow
path, which reads the head, appends the batch.
"""

from typing import NamedTuple

from sqlalchemy.exc import IntegrityError

from control_api.store.errors import FAULTS, is_conflict, is_fault
from control_api.store.log.chain import Appended, LogChain
from control_api.store.log.heads import LogEnd
from control_api.store.log.postgresql_batch import STATEMENT
from control_api.store.store import Store
from policies.ground.errors import SluiceError
from policies.trail.record import Record

MAX_LOGS = 1024

Answers = list[Appended | SluiceError]


class Attempted(NamedTuple):
    """`answers` is None unless the batch is known to be written; `unsure` says that it may be."""

    answers: Answers | None
    unsure: bool = False


class LogHeadCache:
    """The cached ends of one store's logs. Evicts the least recently used one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[str, LogEnd] = {}

    def remember(self, tenant_id: str, end: LogEnd) -> None:
        """Cache `end`. Call this after a commit that moved the log's end there."""
        if self._store.autocommit is None:
            return
        self._ends.pop(tenant_id, None)
        self._ends[tenant_id] = end
        while len(self._ends) > MAX_LOGS:
            del self._ends[next(iter(self._ends))]

    async def append(self, tenant_id: str, records: list[Record]) -> Attempted:
        """Appends the batch in one statement if the end is cached and one statement is enough."""
        autocommit = self._store.autocommit
        end = self._ends.pop(tenant_id, None)  # popped: after a failure the head is read
        if autocommit is None or end is None:
            return Attempted(None)
        # Nothing locks out other processes yet: the statement itself compares the head.
        chain, now = LogChain(tenant_id, end), self._store.clock.now()
        answers = [try_add(chain, record, now) for record in records]
        if not chain.fits_one_statement:
            return Attempted(None)
        try:
            # If we die before the answer, the batch is stored whole or not at all. No caller has an
            # answer yet.
            if not await autocommit(tenant_id, STATEMENT, chain.statement_values()):
                return Attempted(None)
        except FAULTS as error:
            if is_conflict(error):
                return Attempted(None)
            # The answer was lost, or an id is in the log already. The slow path looks for the ids
            # before it appends, so a batch that was committed is not written twice.
            if is_fault(error) or isinstance(error, IntegrityError):
                return Attempted(None, unsure=True)
            raise
        self.remember(tenant_id, chain.end)
        return Attempted(answers)


def try_add(chain: LogChain, record: Record, now: int) -> Appended | SluiceError:
    """Adds the record to the chain, or returns the error that refuses this record alone."""
    try:
        return chain.add(record, now)
    except SluiceError as error:
        return error
