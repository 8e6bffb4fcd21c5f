"""The process of one impact run: reads the log, checks that each entry follows from the one before,
and decides each recorded request again. Its input and output are lines of JSON.

The run has a process of its own, with the lowest priority, so that evaluations in the service keep
their event loop and their interpreter lock. The process only reads the database. It reports its
counts to the service, a line a second on standard output. If the service dies, writing the next
line fails, and the process ends.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import orjson
from sqlalchemy import Connection, bindparam, select

from control_api.database_limits import DatabaseLimits
from control_api.policy import impact_queries
from control_api.policy.impact_counts import ImpactCounts
from control_api.policy.impact_queries import Reached
from control_api.store.opening import open_beside
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.definitions.model import Policy
from policies.ground.canonical import b64, unb64
from policies.ground.clock import Clock
from policies.trail.entry import EntryFinding
from policies.trail.recompute.replay import Replay
from policies.trail.walk.chain_walk import ChainWalk

MAX_LINE = 64 * 1024 * 1024
"""The most bytes in one line. The largest possible line, two thousand groups with names of 256
characters, takes a tenth of it."""


@dataclass(frozen=True, slots=True)
class Job:
    """The task that the service sends to a run's process, which resumes the run: replay the entries
    from `next_seq` up to `until` (exclusive) of the log named `log`. `counts` are the counts so
    far, empty at the beginning."""

    database_url: str
    limits: DatabaseLimits
    tenant_id: str
    impact_id: str
    log: str
    next_seq: int
    until: int
    last_leaf: bytes
    last_eid: str | None
    counts: bytes

    def to_line(self) -> bytes:
        wire = {name: getattr(self, name) for name in self.__slots__}
        wire |= {"limits": asdict(self.limits), "last_leaf": b64(self.last_leaf)}
        return orjson.dumps(wire | {"counts": self.counts.decode()}) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Job":
        wire: dict[str, Any] = orjson.loads(line)
        wire["limits"] = DatabaseLimits(**wire["limits"])
        wire["last_leaf"] = unb64(wire["last_leaf"])
        wire["counts"] = wire["counts"].encode()
        return cls(**wire)


@dataclass(frozen=True, slots=True)
class Message:
    """A report from the run's process to the service. `reached` is the new progress, or None if
    there is none. `end` is `done` or the reason why the run failed, and None while it goes on."""

    reached: Reached | None = None
    end: str | None = None

    def to_line(self) -> bytes:
        wire: dict[str, Any] = {"end": self.end}
        if self.reached is not None:
            wire |= {
                "next_seq": self.reached.next_seq,
                "last_leaf": b64(self.reached.last_leaf),
                "last_eid": self.reached.last_eid,
                "counts": orjson.Fragment(self.reached.counts),
            }
        return orjson.dumps(wire) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Message":
        wire: Mapping[str, Any] = orjson.loads(line)
        if "next_seq" not in wire:
            return cls(None, wire["end"])
        counts, leaf = orjson.dumps(wire["counts"]), unb64(wire["last_leaf"])
        return cls(Reached(wire["next_seq"], leaf, wire["last_eid"], counts), wire["end"])


DONE = "done"


LOWEST_PRIORITY = 19
SECONDS = 1.0
"""The seconds between two reports to the service."""
FIRST_ROWS, MAX_ROWS, PAGE_BYTES = 200, 4000, 4 * 1024 * 1024
"""The rows of the first page that is read from the log, the most rows of a later page, and the
bytes that a later page should have."""


def main(clock: Clock, jobs: BinaryIO, answers: BinaryIO) -> int:
    """Carry out the job that stands on standard input. Return the exit code."""
    with suppress(OSError):  # where a sandbox forbids it
        os.nice(LOWEST_PRIORITY)
    job = Job.from_line(jobs.readline())

    def tell(message: Message) -> None:
        answers.write(message.to_line())
        answers.flush()

    try:
        asyncio.run(_run(job, clock, tell))
    except BrokenPipeError:
        return 1  # the service has gone, or wants no more
    return 0


async def _run(job: Job, clock: Clock, tell: Callable[[Message], None]) -> None:
    store = await open_beside(job.database_url, job.limits, clock)
    try:
        async with store.reading(job.tenant_id) as connection:
            body = await impact_queries.policies_of(connection, job.tenant_id, job.impact_id)
        if body is not None:  # otherwise the run has ended meanwhile
            await ReplayRun(job, store, body, tell).run()
    finally:
        await store.close()


class ReplayRun:
    """Replays the decisions in a range of a log, and counts how they differ."""

    def __init__(
        self, job: Job, store: Store, policies: bytes, tell: Callable[[Message], None]
    ) -> None:
        self._job, self._store, self._tell = job, store, tell
        self._replay = Replay(map(Policy.from_wire, orjson.loads(policies)))
        self._walk = ChainWalk(job.log, job.next_seq, job.last_leaf)
        self._counts = ImpactCounts()
        if job.counts:
            self._counts = ImpactCounts.from_wire(orjson.loads(job.counts))
        self._last_eid = job.last_eid

    async def run(self) -> None:
        """Replay the range to its end. Report the progress every second and at the end."""
        walk, limit, monotonic = self._walk, FIRST_ROWS, self._store.clock.monotonic
        sent_at = monotonic()
        while walk.next_seq < self._job.until:
            kept, rows = await self._page(limit)
            failed = self._take(kept, rows)
            if failed is not None:
                self._tell(Message(self._reached(), failed))
                return
            if monotonic() - sent_at >= SECONDS:
                self._tell(Message(self._reached()))
                sent_at = monotonic()
            weight = sum(len(row.entry) for row in rows)
            limit = max(1, min(PAGE_BYTES * len(rows) // weight, MAX_ROWS))
        self._tell(Message(self._reached(), DONE))

    def _take(self, kept: int, rows: Sequence[Any]) -> str | None:
        """Check and count a page of entries. Return an error message if the page can't be used,
        else None."""
        at = self._walk.next_seq
        if kept > at:
            return (
                f"retention removed the entries from seq {at} to {kept - 1} before they were read"
            )
        take, decide, counts = self._walk.take, self._replay.decide, self._counts
        try:
            if not rows:
                self._walk.missing(self._job.until)
            for seq, raw in rows:
                entry = take(seq, raw)
                counts.entries += 1
                self._last_eid = entry["eid"]
                if entry["kind"] == "decision":
                    counts.add(decide(entry), entry)
        except EntryFinding as found:
            return f"{found.reason}: {found}"
        return None

    async def _page(self, rows: int) -> tuple[int, Sequence[Any]]:
        """Read the next page of entries. Return the position of the first entry that no purge has
        removed, and the rows."""
        page = {
            "tenant": self._job.tenant_id,
            "first": self._walk.next_seq,
            "until": self._job.until,
            "rows": rows,
        }

        def read(connection: Connection) -> tuple[int, Sequence[Any]]:
            found = connection.execute(_PAGE, page).all()
            # Read last: a purge commits its anchor before it removes the first row.
            kept = connection.execute(select(first_kept(self._job.tenant_id))).scalar_one()
            return kept, found

        return await self._store.run_reading(self._job.tenant_id, read)

    def _reached(self) -> Reached:
        counts = orjson.dumps(self._counts.to_wire())
        return Reached(self._walk.next_seq, self._walk.last_leaf, self._last_eid, counts)


_PAGE = (
    select(log_entries.c.seq, log_entries.c.entry)
    .where(
        of_tenant(log_entries, bindparam("tenant")),
        log_entries.c.seq >= bindparam("first"),
        log_entries.c.seq < bindparam("until"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
