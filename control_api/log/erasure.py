"""Erases openings (the values behind commitments, such as personal data) of one tenant's log, in
such a way that the log still verifies. Then empties SQLite's write-ahead log, which still holds
pages from before.

    find       a few entries of the target, and the lineage of its events
    check      no legal hold covers one of them, under the lock that placing a hold takes
    erase      their openings, the index rows derived from them, and the `redact` entry that records
               it, in one transaction

These steps are repeated until nothing is left, or until the request's budget is spent. If we die
between two steps, what was erased is recorded as erased, and the same request erases the rest. If
we die before the write-ahead log is empty, opening the database folds the rest of it into the file.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries import holds, redactions
from control_api.store.queries.holds import ActiveHolds
from control_api.store.queries.redactions import ErasableEntry, ErasureTarget, NamedSession
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from policies.ground.errors import Conflict
from policies.trail.removal import redact_record

MIN_STEP, FIRST_STEP, MAX_STEP = 8, 64, 512
"""The minimum, the initial and the maximum number of entries erased in one step. On SQLite
evaluations wait for a step, so it has as many entries as `STEP_SECONDS` allow, and a pause of twice
its duration follows."""
STEP_SECONDS = 0.005
BUDGET = 20_000
"""The most entries that one request erases; if others are left, its answer says `more`."""
SESSIONS = 100
"""The most sessions handled in one step."""
SHOWN_HOLDS = 10


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A request to erase openings: the target, the id of the key that asked for it, and the
    reason."""

    tenant_id: str
    target: ErasureTarget
    by: str
    reason: str


@dataclass(slots=True)
class Erased:
    """The result of one erasure request: the number of entries whose openings are erased, the
    number of sessions whose user is erased, the `seq` of the last `redact` entry (None if there was
    nothing to erase), and whether more is left."""

    entries: int = 0
    sessions: int = 0
    seq: int | None = None
    more: bool = False


class _Step(NamedTuple):
    entries: Sequence[ErasableEntry] = ()
    lineage: Sequence[int] = ()
    sessions: Sequence[NamedSession] = ()


class Erasure:
    """Carries out one erasure request. `new_id` draws entry ids."""

    def __init__(self, store: Store, request: ErasureRequest, new_id: Callable[[], str]) -> None:
        self._store = store
        self._request = request
        self._tenant_id = request.tenant_id
        self._target = request.target
        self._new_id = new_id
        self._limit = FIRST_STEP
        self.done = Erased()

    async def run(self) -> Erased:
        """Erase the target step by step, and return the result. Raises `Conflict` if a legal hold
        covers anything of the target: nothing is erased then, unless the hold was placed after the
        erasure had begun."""
        async with self._store.reading(self._tenant_id) as connection:
            size = await redactions.log_size(connection, self._tenant_id)
            held = await holds.active(connection, self._tenant_id)
        if held:
            # All of it is checked before anything goes: half an erasure helps neither side.
            await self._refuse_held(held, size)
        async for step in self._steps(size):
            seconds = await self._erase(step)
            await asyncio.sleep(2 * seconds)
            factor = min(2.0, STEP_SECONDS / max(seconds, 1e-6))
            self._limit = max(MIN_STEP, min(MAX_STEP, int(self._limit * factor)))
        return self.done

    async def _steps(self, size: int) -> AsyncIterator[_Step]:
        left, budget, sessions = range(size), BUDGET, _Sessions(self._target)
        while True:
            page, lineage = await self._plan(left)
            sessions.seen(page)
            # Of a session, those erased before are found again: counted, they would use up the
            # budget of every further request, and the rest would never go.
            opened = sum(each.opened for each in page) + len(lineage)
            budget -= opened
            if len(lineage) == self._limit:
                # Events with more lineage than a step takes: that goes first, then they do.
                yield _Step(lineage=lineage)
            elif len(page) == self._limit:
                left = range(page[-1].seq + 1, size)
                if opened:
                    yield _Step(page, lineage)
            else:
                break
            if budget <= 0:
                self.done.more = True
                return
        # Last, because a session keeps its user until its last opening is gone.
        async with self._store.reading(self._tenant_id) as connection:
            rows = await sessions.rows(connection, self._tenant_id)
        yield _Step(page, lineage, rows[:SESSIONS])
        for at in range(SESSIONS, len(rows), SESSIONS):
            yield _Step(sessions=rows[at : at + SESSIONS])

    async def _plan(self, part: range) -> tuple[list[ErasableEntry], list[int]]:
        tenant_id, limit = self._tenant_id, self._limit
        async with self._store.reading(tenant_id) as connection:
            page = await redactions.entries_of(connection, tenant_id, self._target, part, limit)
            events = [each.eid for each in page if each.kind == "decision"]
            return page, await redactions.lineage_of(connection, tenant_id, events, limit)

    async def _erase(self, step: _Step) -> float:
        """Erase one step; return for how many seconds other writers had to wait."""
        clock, request, done = self._store.clock, self._request, self.done

        async def work(tx: Transaction) -> tuple[float, int, int, int | None]:
            start = clock.monotonic()
            # The tenant's row is locked, so a hold is either seen here, or placed after the commit.
            held = await holds.active(tx.connection, tx.tenant_id)
            if covering := _holds_over(held, step):
                raise _refused(covering, done.entries)
            seqs = [*(each.seq for each in step.entries if each.opened), *step.lineage]
            gone = await redactions.erase(tx.connection, tx.tenant_id, sorted(seqs))
            named = await self._forgettable(tx, step.sessions)
            await redactions.forget_user(tx.connection, tx.tenant_id, named)
            if self._target.facet == "user_id":
                await holds.forget_user(tx.connection, tx.tenant_id, self._target.value)
            seq = None
            if gone or named:
                record = redact_record(request.by, request.reason, gone, record_id=self._new_id())
                seq = (await tx.append(record)).seq
            return clock.monotonic() - start, len(gone), len(named), seq

        # If we die before the commit, nothing has happened; after it, the erasure is recorded.
        seconds, entries, sessions, seq = await self._store.write(self._tenant_id, work)
        done.entries += entries
        done.sessions += sessions
        done.seq = done.seq if seq is None else seq
        return seconds

    async def _forgettable(self, tx: Transaction, rows: Sequence[NamedSession]) -> list[str]:
        """Return the ids of the sessions whose user can be erased. If the target is single events,
        these are only the sessions without any other opening."""
        ids = [row.session_id for row in rows]
        if self._target.facet is not None:
            return ids
        return [
            each
            for each in ids
            if not await redactions.has_opening(tx.connection, tx.tenant_id, each)
        ]

    async def _refuse_held(self, held: ActiveHolds, size: int) -> None:
        """Raise `Conflict`, naming the holds, if legal holds cover part of the target."""
        tenant_id, target = self._tenant_id, self._target
        covering: list[str] = []
        if target.facet == "user_id":
            covering += held.over(None, None, target.value)
        left, sessions = range(size), _Sessions(target)
        while left:
            async with self._store.reading(tenant_id) as connection:
                page = await redactions.entries_of(connection, tenant_id, target, left, MAX_STEP)
                sessions.seen(page)
                left = range(page[-1].seq + 1, size) if len(page) == MAX_STEP else range(0)
                rows = [] if left else await sessions.rows(connection, tenant_id)
            covering += _holds_over(held, _Step(page, (), rows))
        if covering:
            raise _refused(covering, 0)


class _Sessions:
    """Collects the sessions whose user is to be erased together with the target."""

    def __init__(self, target: ErasureTarget) -> None:
        self._target = target
        self._ids: dict[str, None] = {}
        if target.facet == "session_id":
            self._ids[target.value] = None

    def seen(self, entries: Iterable[ErasableEntry]) -> None:
        """Note the sessions of entries if the target is single events. One request names a bounded
        number of those."""
        if self._target.facet is None:
            ids = (each.session_id for each in entries if each.session_id is not None)
            self._ids.update(dict.fromkeys(ids))

    async def rows(self, connection: AsyncConnection, tenant_id: str) -> list[NamedSession]:
        if self._target.facet == "user_id":
            return await redactions.sessions_of(connection, tenant_id, self._target.value, BUDGET)
        return await redactions.sessions_by_id(connection, tenant_id, list(self._ids))


def _holds_over(held: ActiveHolds, step: _Step) -> list[str]:
    if not held:
        return []
    rows: list[ErasableEntry | NamedSession] = [*step.entries, *step.sessions]
    return [hold for row in rows for hold in held.over(row.session_id, row.agent_id, row.user_id)]


def _refused(covering: Iterable[str], erased: int) -> Conflict:
    ids = list(dict.fromkeys(covering))
    names = ", ".join(f"`{each}`" for each in ids[:SHOWN_HOLDS])
    if len(ids) > SHOWN_HOLDS:
        names += f" and {len(ids) - SHOWN_HOLDS} more"
    before = f"; {erased} entries were erased before it was placed" if erased else ""
    return Conflict(
        f"legal hold {names} covers part of this: release it first, or erase other events{before}"
    )


GATHER_SECONDS = 5.0
"""Seconds to wait for more erasures, so that they share one folding of SQLite's write-ahead log."""
RETRY_SECONDS = 1.0
LATE_SECONDS = 30.0
_log = logging.getLogger("sluice.erasure")


class WalFolding:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._monotonic = clock.monotonic
        self._erased = asyncio.Event()

    def start(self) -> None:
        """Have SQLite's write-ahead log emptied soon, because openings were erased."""
        self._erased.set()

    async def run(self) -> None:
        while True:
            await self._erased.wait()
            await asyncio.sleep(GATHER_SECONDS)
            # Cleared first: what is erased during the fold sets it again.
            self._erased.clear()
            await self._fold()

    async def _fold(self) -> None:
        late = self._monotonic() + LATE_SECONDS - GATHER_SECONDS
        while not await self._store.fold():
            if self._monotonic() >= late:
                late += LATE_SECONDS
                _log.warning(
                    "erased data is still in the database's write-ahead log: a reader keeps it "
                    "from being emptied; trying on"
                )
            await asyncio.sleep(RETRY_SECONDS)
