"""Takes up impact runs, one at a time in this process, and saves how far each has come.

    claim      one run that no process continues, of any tenant: the lease says whose it is
    replay     in a process of its own (`process`), which tells every second what it counted
    save       position and counts together, in one transaction, only while the lease is held
    prove      that the last entry is in a signed checkpoint: so all before it are, by their chain
    end        done, or failed with the reason

If this process dies, another takes the run up where it was saved last, once the lease has ended: no
entry is counted twice, and none is left out. A run that was cancelled is noticed at the next save.
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
    """`database_url` and `database` say how a run's process opens the database; `entropy(n)`
    returns n random bytes."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    checkpoints: CheckpointMaker
    ring: KeyRing
    database_url: str
    database: DatabaseLimits


LEASE = 5_000_000
"""Microseconds. A run is saved every second, so another process continues it only after a death. If
a save takes longer, one of the two finds that the run is not its own any more."""
RENEW_SECONDS = 2.0
"""Seconds between renewals of the lease while the process sends nothing."""
PATIENCE = 150
"""Renewals until a process that tells nothing is given up."""
POLL_SECONDS = 2.0
MAX_ATTEMPTS = 5
"""Processes that take up a run and save nothing, before it fails."""
_log = logging.getLogger("sluice.impact")
T = TypeVar("T")


class ImpactLoop:
    """The impact runs of this process."""

    def __init__(self, parts: ImpactParts) -> None:
        self._parts = parts
        self._asked = asyncio.Event()
        self._outage = OutageLogger(_log, "impact runs can't go on", "impact runs go on")

    def start(self) -> None:
        """Take up a run that was just added."""
        self._asked.set()

    async def run(self) -> None:
        """Runs as long as the app."""
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
        """Continue the run that has waited longest, to its end. False if none waits."""
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
    """A run whose lease this process may hold."""

    def __init__(self, parts: ImpactParts, tenant_id: str, impact_id: str, lease: str) -> None:
        self._parts, self._tenant_id, self._impact_id = parts, tenant_id, impact_id
        self._run = (tenant_id, impact_id, lease)

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._parts.store.write(self._tenant_id, work)

    async def claim(self) -> StoredRun | None:
        """Return the run; None if another process holds it, or it has ended."""
        return await self._write(
            lambda tx: impact_queries.claim(tx.connection, *self._run, tx.now, tx.now + LEASE)
        )

    async def renew(self, lease: int = LEASE) -> bool:
        """Hold the run for so many microseconds more; with 0, another process may continue at once.
        False if it is not this process's any more, or has ended."""
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
        """Let a process of its own count, and save what it tells, until the run ends, or is not
        this process's any more."""
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
        """Return the next line of the process; empty if it died, or takes too long, or the run is
        not this process's any more."""
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
        """End the run: done, if its last entry is in the log's signed tree."""
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
