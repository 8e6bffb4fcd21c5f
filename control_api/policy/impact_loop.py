"""Carries out impact runs, one at a time in this process, and saves the progress of each.

    claim      take the lease of a run, of any tenant, whose lease no process holds
    replay     in a separate process (`impact_process`), which reports its counts every second
    save       position and counts together, in one transaction, only while the lease is held
    prove      that the last entry is in a signed checkpoint: so all before it are, by their chain
    end        done, or failed with the reason

If this process dies, another continues the run from its last saved position once the lease has
expired: no entry is counted twice, and none is left out. A run that was cancelled is noticed at the
next save.
"""

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from subprocess import PIPE
from typing import NamedTuple, TypeVar

from sqlalchemy import select

from control_api.database_limits import DatabaseLimits
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.proofs import BrokenTree, prove_entry
from control_api.log.purge_plan import PurgeMismatch
from control_api.policy import impact_queries
from control_api.policy.impact_process import DONE, MAX_LINE, Job, Message
from control_api.policy.impact_queries import RunState, StoredRun
from control_api.store.queries import log_keys
from control_api.store.schema.log import log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from control_api.this_program import IMPACT_RUN, this_program
from policies.ground.clock import Clock
from policies.ground.errors import NotFound, SluiceError
from policies.ground.process.outage_logger import OutageLogger
from policies.ground.signing import KeyRing
from policies.trail.merkle_tree import leaf_hash


class ImpactParts(NamedTuple):
    """The objects that impact runs work with. A run's process opens the database by `database_url`
    and `database`; `entropy(n)` returns n random bytes."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    checkpoints: CheckpointMaker
    ring: KeyRing
    database_url: str
    database: DatabaseLimits


LEASE = 5_000_000
"""The duration of a run's lease in microseconds. The run is saved every second, which renews the
lease, so another process continues the run only if this one dies. If a save takes longer than the
lease, one of the two processes finds that it has lost the lease."""
RENEW_SECONDS = 2.0
"""The seconds between renewals of the lease while the run's process sends nothing."""
PATIENCE = 150
"""The number of renewals after which a run's process that reports nothing is given up."""
POLL_SECONDS = 2.0
MAX_ATTEMPTS = 5
"""The most times that a run is claimed without saving any progress, before it fails."""
_log = logging.getLogger("sluice.impact")
T = TypeVar("T")


class ImpactLoop:
    """Carries out the impact runs that this process claims."""

    def __init__(self, parts: ImpactParts) -> None:
        self._parts = parts
        self._asked = asyncio.Event()
        self._outage = OutageLogger(_log, "impact runs can't go on", "impact runs go on")

    def start(self) -> None:
        """Wake the loop, because a run was just added."""
        self._asked.set()

    async def run(self) -> None:
        """Carry out impact runs for as long as the app runs."""
        while True:
            worked = False
            self._asked.clear()
            try:
                worked = await self.once()
            except SluiceError as error:
                self._outage.failing(error)
            else:
                self._outage.recovered()
            if not worked:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._asked.wait(), POLL_SECONDS)

    async def once(self) -> bool:
        """Claim the run that has waited longest, and carry it out to its end. Return False if no
        run waits."""
        now = self._parts.clock.now()
        async with self._parts.store.reading_all_tenants() as connection:
            waiting = await impact_queries.due(connection, now, limit=10)
        for tenant_id, impact_id in waiting:
            lease = self._parts.entropy(16).hex()
            if await self._continue(HeldRun(self._parts, tenant_id, impact_id, lease)):
                return True
        return False

    async def _continue(self, held: "HeldRun") -> bool:
        run = await held.claim()
        if run is None:
            return False  # another process was faster
        try:
            if run.attempts > MAX_ATTEMPTS:
                reason = f"its process ended {MAX_ATTEMPTS} times and had saved nothing"
                await held.end(RunState.failed, reason)
            else:
                await held.replay(run)
        except SluiceError:
            raise
        except Exception:  # noqa: BLE001  one run must not end the service
            # Such as a machine without room for another process.
            _log.exception("an impact run's process can't be used")
        finally:
            # If it has not ended: the service stops, or the database is away.
            with suppress(SluiceError):
                await held.renew(0)
        return True


class HeldRun:
    """An impact run for which this process has, or tries to get, the lease."""

    def __init__(self, parts: ImpactParts, tenant_id: str, impact_id: str, lease: str) -> None:
        self._parts, self._tenant_id, self._impact_id = parts, tenant_id, impact_id
        self._run = (tenant_id, impact_id, lease)

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._parts.store.write(self._tenant_id, work)

    async def claim(self) -> StoredRun | None:
        """Take the run's lease and return the run. Return None if another process holds the lease,
        or the run has ended."""
        return await self._write(
            lambda tx: impact_queries.claim(tx.connection, *self._run, tx.now, tx.now + LEASE)
        )

    async def renew(self, lease: int = LEASE) -> bool:
        """Renew the lease for `lease` microseconds; with 0, another process may continue the run at
        once. Return False if this process has lost the lease, or the run has ended."""
        return await self._write(
            lambda tx: impact_queries.renew(tx.connection, *self._run, tx.now + lease)
        )

    async def end(
        self, state: RunState, reason: str | None = None, checkpoint_size: int | None = None
    ) -> None:
        values = {"state": state, "reason": reason, "checkpoint_size": checkpoint_size}
        await self._write(
            lambda tx: impact_queries.end(tx.connection, *self._run, values | {"ended_at": tx.now})
        )

    async def replay(self, run: StoredRun) -> None:
        """Start the run's process and save the progress that it reports, until the run ends or this
        process loses the lease."""
        job = await self._job(run)
        process = await asyncio.create_subprocess_exec(
            *this_program(),
            IMPACT_RUN,
            stdin=PIPE,
            stdout=PIPE,
            limit=MAX_LINE,
            # A Ctrl-C in a terminal is for the service, which then ends this process.
            start_new_session=True,
        )
        try:
            await self._follow(process, job)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _follow(self, process: Process, job: Job) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        # If it died already, the end of its output says so; uvloop raises `RuntimeError` then.
        with suppress(ConnectionError, RuntimeError):
            process.stdin.write(job.to_line())
            await process.stdin.drain()
        last = (job.last_eid, job.last_leaf)
        while line := await self._line(process.stdout):
            message = Message.from_line(line)
            reached = message.reached
            if reached is not None:
                last = (reached.last_eid, reached.last_leaf)
                if not await self._save(message):
                    return
            if message.end == DONE:
                await self._prove(job, *last)
                return
            if message.end is not None:
                await self.end(RunState.failed, message.end)
                return
        _log.error("the process of impact run `%s` ended early", self._impact_id)

    async def _line(self, output: asyncio.StreamReader) -> bytes:
        """Return the next line that the run's process writes, and renew the lease meanwhile. Return
        empty bytes if the process died or is silent for too long, or if the lease is lost."""
        # On a busy machine, its priority may keep it from telling anything for longer than a lease.
        for _ in range(PATIENCE):
            with suppress(TimeoutError):
                return await asyncio.wait_for(output.readline(), RENEW_SECONDS)
            if not await self.renew():
                return b""
        return b""

    async def _save(self, message: Message) -> bool:
        reached = message.reached
        assert reached is not None
        # If we die before this commits, these entries are read again; after it, they are not.
        return await self._write(
            lambda tx: impact_queries.save(tx.connection, *self._run, reached, tx.now + LEASE)
        )

    async def _prove(self, job: Job, last_eid: str | None, last_leaf: bytes) -> None:
        """End the run: as `done` if its last entry is proven to be in the log's signed tree, else
        as `failed`."""
        parts = self._parts
        if last_eid is None:  # the range has no entry
            return await self.end(RunState.done)
        try:
            covering = await parts.checkpoints.covering(self._tenant_id, job.until)
            publics = await log_keys.trusted(parts.store, parts.ring)
            proven = await prove_entry(parts.store, self._tenant_id, last_eid, None, publics)
        except (PurgeMismatch, BrokenTree, NotFound) as error:
            return await self.end(RunState.failed, f"the entries can't be proven: {error}")
        if leaf_hash(proven.entry) != last_leaf or proven.seq != job.until - 1:
            reason = f"the entries can't be proven: entry {proven.seq} is not the one that was read"
            return await self.end(RunState.failed, reason)
        return await self.end(RunState.done, None, covering.size)

    async def _job(self, run: StoredRun) -> Job:
        query = select(log_heads.c.log).where(of_tenant(log_heads, self._tenant_id))
        async with self._parts.store.reading(self._tenant_id) as connection:
            log = (await connection.execute(query)).scalar_one()
        return Job(
            self._parts.database_url,
            self._parts.database,
            self._tenant_id,
            run.impact_id,
            log,
            run.next_seq,
            run.until_seq,
            run.last_leaf,
            run.last_eid,
            run.counts,
        )
