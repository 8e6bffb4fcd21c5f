"""Caches the ends of the logs that this process appended to most recently, so that the next batch
need not read the head. On PostgreSQL an append is then one statement, one round trip and one
commit. While one batch is being committed, the records of the next are numbered and hashed as its
continuation.

INVARIANT: a cached head is only a guess. The statement moves the head from the cached size and
leaf, and writes nothing if the head is elsewhere. Then another writer was faster, or the batch
before failed, and the slow path, which reads the head, appends the batch.
"""

from typing import NamedTuple, TypeVar

from sqlalchemy.exc import IntegrityError

from control_api.store.errors import FAULTS, is_conflict, is_fault
from control_api.store.group_commit import MAX_BATCH
from control_api.store.log.chain import Appended, LogChain, LogEnd
from control_api.store.store import Store
from policies.ground.errors import SluiceError
from policies.trail.record import Record

K = TypeVar("K")
V = TypeVar("V")
MAX_LOGS = 1024
MAX_SPOOLS = 4096

Answers = list[Appended | SluiceError]


class Attempted(NamedTuple):
    """The result of trying to append a batch behind a cached end. `answers` is None unless the
    batch is known to be written; `may_be_written` says that it may have been."""

    answers: Answers | None
    may_be_written: bool = False


class _OpenBatch(NamedTuple):
    """A batch that is not sent yet: the log's end, the records numbered so far behind that end, and
    the answers that their callers get if the batch is committed."""

    end: LogEnd
    chain: LogChain
    answers: Answers


class SpoolEnd(NamedTuple):
    """The number and hash of a spool's last record in the log, and the newest revision that its
    source has acknowledged."""

    n: int
    hash: bytes
    newest: int | None


Spool = tuple[str, str, str]
"""The key of a spool: tenant, source and instance."""


class LogHeadCache:
    """Caches the ends of one store's logs, and of the spools whose records they hold. Evicts the
    least recently used ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, _OpenBatch] = {}
        self._spools: dict[Spool, SpoolEnd] = {}

    @property
    def useful(self) -> bool:
        return self._store.autocommit is not None

    def remember(self, tenant_id: str, end: LogEnd) -> None:
        """Cache `end`, the end of a tenant's log. Call this after a commit that moved the log's end
        there."""
        if self.useful:
            batch = _OpenBatch(end, LogChain(tenant_id, end), [])
            _put(self._open, tenant_id, batch, MAX_LOGS)

    def remember_spool(self, spool: Spool, end: SpoolEnd) -> None:
        """Cache `end`, which must be committed to the log already."""
        if self.useful:
            _put(self._spools, spool, end, MAX_SPOOLS)

    def take_spool(self, spool: Spool) -> SpoolEnd | None:
        return self._spools.pop(spool, None)

    def take(self, tenant_id: str) -> LogChain | None:
        """Remove the cached end of a log, and return an empty chain that continues from it; None if
        it is not cached. Records that were prepared behind this end are numbered again."""
        batch = self._open.pop(tenant_id, None)
        return None if batch is None else LogChain(tenant_id, batch.end)

    def prepare(self, tenant_id: str, record: Record, place: int) -> None:
        """Number a record while the batch before its own is committed, if all records before it are
        numbered. `place` is its place in the queue of waiting records."""
        batch = self._open.get(tenant_id)
        if batch is not None and len(batch.answers) == place < MAX_BATCH:
            batch.answers.append(try_add(batch.chain, record, self._store.clock.now()))

    async def append(self, tenant_id: str, records: list[Record]) -> Attempted:
        """Append the batch if the log's end is cached and still the actual end. `records` begins
        with those that were prepared."""
        batch = self._open.pop(tenant_id, None)
        if batch is None:
            return Attempted(None)
        chain, answers, now = batch.chain, batch.answers, self._store.clock.now()
        answers += [try_add(chain, record, now) for record in records[len(answers) :]]
        written = await self.commit(chain)
        return Attempted(answers if written else None, may_be_written=written is None)

    async def commit(self, chain: LogChain) -> bool | None:
        """Write a batch behind a cached end: in one statement, unless blocks of the index are due.
        Returns whether it was written; None if that is unknown. Call it on the service's task
        group."""
        # The records that arrive from now on are numbered behind this batch. If it fails, they are
        # numbered again.
        self.remember(chain.tenant_id, chain.end)
        written: bool | None = False
        try:
            # Nothing locks out other processes yet: the statement itself compares the head. If we
            # die before the answer, the batch is stored whole or not at all. No caller has an
            # answer yet.
            written = await self._write(chain)
        except FAULTS as error:
            # The answer was lost, or an id is in the log already. The slow path looks for the ids
            # before it appends, so a batch that was committed is not written twice.
            if not is_conflict(error):
                if is_fault(error) or isinstance(error, IntegrityError):
                    return None
                raise
        finally:
            if not written:
                self._open.pop(chain.tenant_id, None)
        return written

    async def _write(self, chain: LogChain) -> bool | None:
        if not chain.changed:  # every record was refused
            return True
        if chain.fits_one_statement:
            autocommit = self._store.autocommit
            assert autocommit is not None
            return await autocommit(chain.tenant_id, *chain.statement())
        return await self._store.run(
            self._store.lane(chain.tenant_id),
            lambda connection, again: None if again else chain.save_unless_moved(connection),
        )


def _put(cache: dict[K, V], key: K, value: V, most: int) -> None:
    cache.pop(key, None)
    cache[key] = value
    while len(cache) > most:
        del cache[next(iter(cache))]


def try_add(chain: LogChain, record: Record, now: int) -> Appended | SluiceError:
    """Add the record to the chain, or return the error if this record alone is refused."""
    try:
        return chain.add(record, now)
    except SluiceError as error:
        return error
