"""The ends of the logs that this process appended to last, so that the next batch needs not read
them: on PostgreSQL it is then one statement, one round trip, one commit.

INVARIANT: what is known here is believed by nobody. The statement moves the head from the size and
the leaf that are known, and writes nothing where it stands elsewhere: then another process, or a
transaction of this one, was there, and the batch is placed again behind what it left.
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

MOST = 1024

Answers = list[Appended | SluiceError]


class Attempted(NamedTuple):
    """`answers` is None where nothing is known to be written; `unsure` where it may be."""

    answers: Answers | None
    unsure: bool = False


class LogHeadCache:
    """Of a store's logs; the one used longest ago goes first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[str, LogEnd] = {}

    def know(self, tenant_id: str, end: LogEnd) -> None:
        """A batch was committed that ended there."""
        if self._store.autocommit is None:
            return
        self._ends.pop(tenant_id, None)
        self._ends[tenant_id] = end
        while len(self._ends) > MOST:
            del self._ends[next(iter(self._ends))]

    async def append(self, tenant_id: str, records: list[Record]) -> Attempted:
        """The batch in one statement, where that can be."""
        once = self._store.autocommit
        end = self._ends.pop(tenant_id, None)  # whatever goes wrong: it is read anew
        if once is None or end is None:
            return Attempted(None)
        chain, now = LogChain(tenant_id, end), self._store.clock.now()
        answers = [place(chain, record, now) for record in records]
        if not chain.fits_one_statement:
            return Attempted(None)
        try:
            # If we die before the answer, the batch is there or it is not, whole; nobody was told.
            if not await once(tenant_id, STATEMENT, chain.statement_values()):
                return Attempted(None)
        except FAULTS as error:
            if is_conflict(error):
                return Attempted(None)
            if is_fault(error) or isinstance(error, IntegrityError):
                return Attempted(None, unsure=True)
            raise
        self.know(tenant_id, chain.end)
        return Attempted(answers)


def place(chain: LogChain, record: Record, now: int) -> Appended | SluiceError:
    """Or why this record, of all in its batch, is not placed."""
    try:
        return chain.add(record, now)
    except SluiceError as error:
        return error
