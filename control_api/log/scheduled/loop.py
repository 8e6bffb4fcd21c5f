"""Runs the scheduled verification of every tenant's log, and of a log that someone asked for, and
passes the findings on: to readiness, to metrics, and to the service's log. Knows nothing of
entries: `self_check` verifies them.

Also compares each log's counts with its entries, once a day and on request.

    claim      the log, so that one process at a time compares its counts
    compare    `control_api.log.counts`
    save       the finding, which stays until the next comparison

The comparison is a walk of its own, in one go, beside that of the verification. Its sums stay in
this process's memory, so that a change of the database does not reach them.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection

from control_api.jitter import jitter
from control_api.log.counts import SECRET_BYTES, EntriesMoved, compare_counts
from control_api.log.scheduled.asked_logs import LEASE, AskedLogs, Lease, LeaseLost
from control_api.log.scheduled.self_check import REST, ROUND, SelfChecker
from control_api.metrics.metrics import JobMetrics
from control_api.store.queries import log_keys, tenant_rows
from control_api.store.queries.leases import ASKED_FOR, CountCheck, SelfCheck, count_checks
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.ground.signing import KeyRing
from policies.trail.recompute.recomputer import RecomputeCounts


class CountChecker:
    """Compares the counts of one store's logs with their entries. `rest` is the time that other
    tasks get, as a multiple of the CPU time of the comparison."""

    def __init__(self, store: Store, entropy: Callable[[int], bytes], rest: float) -> None:
        self._store, self._entropy, self._rest = store, entropy, rest

    async def step(self, tenant_id: str) -> CountCheck:
        """Compare a log's counts if that is due, and return the state after it. Nothing is done
        while another process compares, or if a purge came between; then the next call does it."""
        now = self._store.clock.now()
        state = await self._state(tenant_id)
        recent = state.checked_at is not None and now - state.checked_at < ROUND
        if recent and state.leased_until != ASKED_FOR:
            return state
        lease = Lease(self._store, count_checks, tenant_id, now + LEASE)
        async with lease.released():
            if await lease.claim(CountCheck(), now) is None:
                return await self._state(tenant_id)
            after = CountCheck(state.checked_at, state.reason)
            secret = self._entropy(SECRET_BYTES)
            try:
                found = await compare_counts(self._store, tenant_id, secret, self._rest, lease.keep)
                after = CountCheck(self._store.clock.now(), None if found is None else found.text())
            except EntriesMoved:
                pass
            except LeaseLost:
                return await self._state(tenant_id)
        # If we die before this, another process compares once the lease has ended.
        await lease.end(after)
        return await self._state(tenant_id)

    async def _state(self, tenant_id: str) -> CountCheck:
        async with self._store.reading(tenant_id) as connection:
            return await count_checks.state(connection, tenant_id)


FIRST_SECONDS = 10.0
INTERVAL_SECONDS = 60.0
ASKED_REST = 1.0
"""The rest between steps for a log that someone waits for, as a multiple of the CPU time: decisions
get at least half of the time."""
_log = logging.getLogger("sluice.self_verification")


class SelfVerification:
    """Runs the loops of the scheduled verification, and holds the state of each log as of its last
    turn."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Callable[[int], bytes],
        ring: KeyRing,
        asked_logs: AskedLogs,
        metrics: JobMetrics,
    ) -> None:
        self._store, self._clock, self._entropy, self._ring = store, clock, entropy, ring
        self._asked_logs = asked_logs
        self._derived = metrics.derived_decisions
        self._checker = SelfChecker(store, self._count)
        self._asked_checker = SelfChecker(store, self._count, ASKED_REST)
        self._counts = CountChecker(store, entropy, REST)
        self._asked_counts = CountChecker(store, entropy, ASKED_REST)
        self._states: dict[str, SelfCheck] = {}
        self._compared: dict[str, CountCheck] = {}
        metrics.self_verification_age.set_function(self.age)
        metrics.self_verification_findings.set_function(self.findings)

    async def run(self) -> None:
        wait = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait * jitter(self._entropy))
            await self.once()
            wait = INTERVAL_SECONDS

    async def run_asked(self) -> None:
        """Verify, one after the other, the logs that someone asked for. Runs as long as the app."""
        while True:
            tenant_id = await self._asked_logs.next()
            try:
                publics = await log_keys.trusted(self._store, self._ring)
                await self._walk(self._asked_checker, tenant_id, publics)
                await self._compare(self._asked_counts, tenant_id)
            except SluiceError as error:
                # The scheduled verification goes on where this one ended.
                _log.warning("a verification that was asked for broke off: %s", error)

    async def once(self) -> None:
        """Verify what is new in every log. If the database does not answer, the next turn tries
        again."""
        try:
            async with self._store.reading_all_tenants() as connection:
                tenant_ids = await tenant_rows.ids(connection)
            publics = await log_keys.trusted(self._store, self._ring)
            for tenant_id in tenant_ids:
                await self._walk(self._checker, tenant_id, publics)
                await self._compare(self._counts, tenant_id)
        except SluiceError as error:
            _log.warning("the scheduled verification could not run: %s", error)

    async def _walk(self, checker: SelfChecker, tenant_id: str, publics: Collection[bytes]) -> None:
        """Verify one log to its end, or until another process or loop verifies it."""
        more = True
        while more:
            state, more = await checker.step(tenant_id, publics)
            self._note(tenant_id, state)

    async def _compare(self, checker: CountChecker, tenant_id: str) -> None:
        state = await checker.step(tenant_id)
        before = self._compared.get(tenant_id, CountCheck())
        self._compared[tenant_id] = state
        if state.reason is not None and state.reason != before.reason:
            _log.error("tenant `%s`: %s", tenant_id, state.reason)
        if state.reason is None and before.reason is not None:
            _log.warning(
                "recovered: the counts of tenant `%s` are those of its log again", tenant_id
            )

    def _note(self, tenant_id: str, state: SelfCheck | None) -> None:
        if state is None:
            return
        before = self._states.get(tenant_id)
        self._states[tenant_id] = state
        was = None if before is None else before.reason
        if state.reason is not None and state.reason != was:
            _log.error(
                "the log of tenant `%s` does not verify, first at `%s`: %s",
                tenant_id,
                state.broken_at,
                state.reason,
            )
        if state.reason is None and was is not None:
            _log.warning("recovered: the log of tenant `%s` verifies again", tenant_id)

    def _count(self, counts: RecomputeCounts) -> None:
        derived = self._derived
        derived.labels("follows").inc(counts.recomputed)
        derived.labels("differs").inc(counts.findings)
        derived.labels("unknown").inc(counts.not_recomputable)
        derived.labels("outside").inc(counts.outside)

    def age(self) -> float:
        """Return the seconds since the last complete verification of the log whose last one is the
        oldest; NaN if one was never verified completely."""
        finished = self._finished_at()
        return math.nan if finished is None else (self._clock.now() - finished) / 1e6

    def _finished_at(self) -> int | None:
        """Return when the log whose last complete verification is oldest was verified; None if one
        never was."""
        finished = [state.finished_at for state in self._states.values()]
        times = [each for each in finished if each is not None]
        return min(times) if times and len(times) == len(finished) else None

    def findings(self) -> int:
        """Return the number of logs with a finding, in their entries or in their counts."""
        found = {tenant for tenant, state in self._states.items() if state.reason is not None}
        found |= {tenant for tenant, state in self._compared.items() if state.reason is not None}
        return len(found)

    def answer(self) -> dict[str, str | None]:
        """Return the state over all logs, as readiness shows it. It names no tenant, since
        readiness needs no key."""
        finished = self._finished_at()
        state = "damaged" if self.findings() else "pending" if finished is None else "valid"
        return {"state": state, "finished_at": None if finished is None else rfc3339(finished)}
