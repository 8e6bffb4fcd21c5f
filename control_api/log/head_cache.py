"""Caches the ends of the logs that this process appended to most recently, so that the next batch
need not read the head. On PostgreSQL an append is then one statement, one round trip and one
commit. While one batch is being committed, the records of the next are numbered and hashed behind
it.

INVARIANT: a cached head is only a guess. The statement moves the head from the cached size and
leaf, and writes nothing if the head is elsewhere. Then another writer was faster, or the batch
before failed, and the slow path, which reads the head, appends the batch.
"""

from typing import NamedTuple

from sqlalchemy.exc import IntegrityError

from control_api.store.errors import FAULTS, is_conflict, is_fault
from control_api.store.group_commit import MAX_BATCH
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


class _OpenBatch(NamedTuple):
    """A batch that is not sent yet: the log's end with the records numbered so far, and the answers
    that they get if it is committed."""

    chain: LogChain
    answers: Answers


class LogHeadCache:
    """The cached ends of one store's logs. Evicts the least recently used one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, _OpenBatch] = {}

    @property
    def useful(self) -> bool:
        """Whether the database gains from it."""
        return self._store.autocommit is not None

    def remember(self, tenant_id: str, end: LogEnd) -> None:
        """Cache `end`. Call this once a transaction that moves the log's end there has committed,
        or before it is sent; if it then fails, call `forget`."""
        if not self.useful:
            return
        self._open.pop(tenant_id, None)
        self._open[tenant_id] = _OpenBatch(LogChain(tenant_id, end), [])
        while len(self._open) > MAX_LOGS:
            del self._open[next(iter(self._open))]

    def prepare(self, tenant_id: str, record: Record, place: int) -> None:
        """Numbers a record that waits at `place` for the batch before its own, if all records
        before it are numbered."""
        batch = self._open.get(tenant_id)
        if batch is not None and len(batch.answers) == place < MAX_BATCH:
            batch.answers.append(try_add(batch.chain, record, self._store.clock.now()))

    async def append(self, tenant_id: str, records: list[Record]) -> Attempted:
        """Appends the batch if the log's end is cached and still there: in one statement, unless
        blocks of the index are due. `records` begins with those that were prepared."""
        batch = self._open.pop(tenant_id, None)
        if batch is None:
            return Attempted(None)
        chain, answers = batch
        now = self._store.clock.now()
        answers += [try_add(chain, record, now) for record in records[len(answers) :]]
        # The records that arrive from now on are numbered behind this batch. If it fails, they are
        # numbered again.
        self.remember(tenant_id, chain.end)
        attempted = Attempted(None)
        try:
            attempted = await self._send(chain, answers)
        finally:
            if attempted.answers is None:
                self._open.pop(tenant_id, None)
        return attempted

    async def _send(self, chain: LogChain, answers: Answers) -> Attempted:
        # Nothing locks out other processes yet: the statement itself compares the head. If we die
        # before the answer, the batch is stored whole or not at all. No caller has an answer yet.
        try:
            moved = await self._write(chain)
        except FAULTS as error:
            if is_conflict(error):
                return Attempted(None)
            # The answer was lost, or an id is in the log already. The slow path looks for the ids
            # before it appends, so a batch that was committed is not written twice.
            if is_fault(error) or isinstance(error, IntegrityError):
                return Attempted(None, unsure=True)
            raise
        return Attempted(answers if moved else None, unsure=moved is None)

    async def _write(self, chain: LogChain) -> bool | None:
        """Whether the batch was written; None if that is unknown."""
        if not chain.changed:  # every record was refused
            return True
        if chain.fits_one_statement:
            autocommit = self._store.autocommit
            assert autocommit is not None
            return await autocommit(chain.tenant_id, STATEMENT, chain.statement_values())
        return await self._store.run(
            self._store.lane(chain.tenant_id),
            lambda connection, again: None if again else chain.save_unless_moved(connection),
        )


def try_add(chain: LogChain, record: Record, now: int) -> Appended | SluiceError:
    """Adds the record to the chain, or returns the error that refuses this record alone."""
    try:
        return chain.add(record, now)
    except SluiceError as error:
        return error
