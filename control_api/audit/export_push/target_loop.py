"""Pushes the decisions of all tenants to the targets of `SLUICE_EXPORT_URLS`. Each target is served
independently of the others, in turns of about a second.

    waiting    find the logs with entries that the target has not acknowledged
    claim      take the lease of one of them, which keeps another replica from pushing it too
    send       its next decisions, in log order; then those of the next log
    settle     wait until the target has acknowledged all that was sent in this turn
    save       the new positions, while the leases are held

INVARIANT: a position is saved only after `settle`. If we die between the two, or the target goes
away, what was sent since the last save is sent again: at least once, and never out of order.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import orjson
from sqlalchemy import Connection, Row, select

from control_api.audit.export_push import position_queries
from control_api.audit.export_push.file import FileSender
from control_api.audit.export_push.otlp import OtlpSender
from control_api.audit.export_push.position_queries import Waiting
from control_api.audit.export_push.sender import Sender, TargetAway
from control_api.audit.export_push.syslog import SyslogSender
from control_api.log.search import events_of
from control_api.metrics.metrics import ExportMetrics
from control_api.security.export_targets import ExportTarget, Protocol
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.trail.entry import audit_event


class ExportParts(NamedTuple):
    """The objects that the pushing of decisions works with. `alone` means that no other process
    uses the database; `stopping` is set once the service drains; `entropy(n)` returns n random
    bytes."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    metrics: ExportMetrics
    targets: Sequence[ExportTarget]
    alone: bool
    stopping: asyncio.Event


SPAN = 10_000
"""The most log entries that one batch covers, however few decisions are among them."""
STRETCH = 100
"""The number of decisions that are encoded in one go in a thread, which takes about two
milliseconds."""
Encode = Callable[[dict[str, Any], str], bytes]
_log = logging.getLogger("sluice.exports")


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded decisions, in log order, and the entry to continue from once they are acknowledged.
    `lost` is the number of entries that retention removed before they could be pushed, and `weight`
    the number of bytes that were read."""

    encoded: list[bytes]
    next_seq: int
    lost: int
    weight: int


async def read_batch(
    store: Store, tenant_id: str, part: range, limit: int, encode: Encode
) -> Batch:
    """Read and encode at most `limit` decisions among the entries in `part`. Raise `ReadFault` if
    the log can't be read."""
    first, until = part.start, min(part.stop, part.start + SPAN)

    def read(connection: Connection) -> tuple[list[Row[Any]], int]:
        seq = log_entries.c.seq
        query = events_of(tenant_id).where(seq >= first, seq < until).order_by(seq).limit(limit)
        rows = list(connection.execute(query).all())
        # Read last: a purge commits its anchor before it removes the first row.
        return rows, connection.execute(select(first_kept(tenant_id))).scalar_one()

    rows, kept = await store.run_reading(tenant_id, read)
    reached = rows[-1].seq + 1 if len(rows) == limit else until
    shown = [row for row in rows if row.seq >= kept]
    encoded: list[bytes] = []
    for at in range(0, len(shown), STRETCH):
        stretch = shown[at : at + STRETCH]
        encoded += await asyncio.to_thread(_encode, tenant_id, stretch, encode)
    weight = sum(len(row.entry) + len(row.openings or b"") for row in rows)
    return Batch(encoded, max(reached, kept), max(0, kept - first), weight)


def _encode(tenant_id: str, rows: list[Row[Any]], encode: Encode) -> list[bytes]:
    encoded = []
    for row in rows:
        try:
            event = audit_event(orjson.loads(row.entry), row.hash, row.openings)
            encoded.append(encode(event, tenant_id))
        except (ValueError, TypeError, LookupError, AttributeError):
            # It must not hold up those behind it for ever; verification reports the damage.
            _log.error(
                "entry %d of tenant `%s` can't be read, and is not exported", row.seq, tenant_id
            )
    return encoded


POLL_SECONDS = 1.0
TURN_SECONDS = 1.0
"""The seconds after which a turn settles what it has sent. If the process is killed, about as much
is sent twice."""
ANSWER_SECONDS = 8.0
"""The seconds after which a target counts as away if it has not accepted a batch or not
acknowledged a turn."""
ONLY_PROCESS = "only process"
LEASE = 30_000_000
"""The duration of a lease in microseconds. It is longer than any turn takes."""
RENEW = 22_000_000
"""If a lease lasts for more microseconds than this, it is not renewed before a turn."""
MAX_BATCH, BATCH_BYTES = 500, 2 * 1024 * 1024
"""The most decisions in a batch, and the bytes that a batch should have, estimated from the batch
before it."""
FIRST_BATCH = 50
BATCHES = 20
"""The most batches in a turn."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""The upper limit in seconds of the pause after the first failure, and after any failure. The limit
doubles each time, and the actual pause is random (full jitter)."""
LAG_SECONDS = 5.0
"""The seconds between two reads of the lag during a longer pause."""
T = TypeVar("T")


class TargetLoop:
    """Pushes decisions to one export target. `place` is the target's position in the setting, from
    1."""

    def __init__(
        self, parts: ExportParts, target: ExportTarget, place: int, sender: Sender
    ) -> None:
        self._parts, self._target, self._sender = parts, target, sender
        self._name = f"export target {place} (`{target.shown}`)"
        self._metrics = parts.metrics.of(place)
        # SQLite has one process, which need not wait for its own lease after a kill.
        self._lease = ONLY_PROCESS if parts.alone else parts.entropy(16).hex()
        self._held: set[str] = set()
        self._last, self._limit, self._failures = "", FIRST_BATCH, 0

    async def run(self) -> None:
        """Push in turns until the service drains. Then finish the turn, and release the leases so
        that other processes can continue at once."""
        while not self._parts.stopping.is_set():
            await self._wait(await self._turn_or_pause())
        if self._failures == 0:
            await self._turn_or_pause()
        await self._sender.abandon()
        with suppress(SluiceError):
            for tenant_id in self._held:
                await self._save(tenant_id, None, 0)

    async def _turn_or_pause(self) -> float:
        """Run one turn. Return the seconds until the next one."""
        after = 0.0
        try:
            more = await self._turn()
        except TargetAway as error:
            reason, after = str(error), error.after
        except SluiceError as error:
            reason = f"the log can't be read: {error}"
        except Exception:  # noqa: BLE001  a target must not end the service
            reason = "see the error before this"
            _log.exception("%s: a turn failed", self._name)
        else:
            return 0.0 if more else POLL_SECONDS
        await self._sender.abandon()
        self._metrics.failures.inc()
        if self._failures == 0:
            _log.warning("%s is away, and its decisions wait in the log: %s", self._name, reason)
        # Less at a time: a slow target may take what it could not take at once.
        self._limit = max(1, self._limit // 4)
        most = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 20))
        self._failures += 1
        return max(after, random.uniform(0.1, most))  # noqa: S311  # spreads load, guards nothing

    async def _turn(self) -> bool:
        """Push decisions that wait, for about a second. Return whether more are waiting."""
        monotonic, turn = self._parts.clock.monotonic, _Turn()
        began = monotonic()
        logs = deque(await self._waiting())
        while logs and turn.batches < BATCHES and monotonic() - began < TURN_SECONDS:
            log = logs.popleft()
            self._last = log.tenant_id
            first = turn.reached.get(log.tenant_id)
            if first is None:
                first = await self._claim(log)
            if first is not None and await self._push(log, first, turn):
                logs.append(log)
        await self._in_time(self._sender.settle())
        # The target has everything. If we die before a save, that log's decisions are repeated.
        for tenant_id, next_seq in turn.reached.items():
            if not await self._save(tenant_id, next_seq, LEASE):
                self._held.discard(tenant_id)
        self._settled(turn)
        return bool(logs)

    async def _waiting(self) -> list[Waiting]:
        """Return the logs that wait, beginning after the tenant that the last turn ended with, so
        that every tenant gets its turn."""
        async with self._parts.store.reading_all_tenants() as connection:
            found = await position_queries.waiting(connection, self._target.identity)
        self._metrics.lag.set(sum(each.lag for each in found))
        return sorted(found, key=lambda each: (each.tenant_id <= self._last, each.tenant_id))

    async def _claim(self, log: Waiting) -> int | None:
        """Take the lease of a log, or keep it if it lasts long enough. Return the first entry to
        push, or None if another process pushes this log."""
        now = self._parts.clock.now()
        if log.leased_until is not None and log.leased_until > now:
            if log.lease != self._lease:
                return None
            if log.leased_until > now + RENEW:
                return log.next_seq

        async def work(tx: Transaction) -> int | None:
            key = (tx.tenant_id, self._target.identity, self._lease)
            return await position_queries.claim(tx.connection, *key, tx.now, tx.now + LEASE)

        first = await self._parts.store.write(log.tenant_id, work)
        if first is not None:
            self._held.add(log.tenant_id)
        return first

    async def _push(self, log: Waiting, first: int, turn: "_Turn") -> bool:
        """Send the next batch of a log. Return whether the log has more."""
        part, encode = range(first, log.size), self._sender.encode
        batch = await read_batch(self._parts.store, log.tenant_id, part, self._limit, encode)
        turn.lost += batch.lost
        if batch.encoded:
            turn.refused += await self._in_time(self._sender.send(batch.encoded))
            turn.sent += len(batch.encoded)
            turn.batches += 1
            fitting = BATCH_BYTES * len(batch.encoded) // batch.weight
            self._limit = max(1, min(2 * self._limit, MAX_BATCH, fitting))
        turn.reached[log.tenant_id] = batch.next_seq
        return batch.next_seq < log.size

    async def _in_time(self, step: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await step
        except TimeoutError:
            raise TargetAway(f"no acknowledgement within {ANSWER_SECONDS:g} s") from None

    async def _save(self, tenant_id: str, next_seq: int | None, lease: int) -> bool:
        async def work(tx: Transaction) -> bool:
            key, until = (tx.tenant_id, self._target.identity, self._lease), tx.now + lease
            return await position_queries.save(tx.connection, *key, until, next_seq)

        return await self._parts.store.write(tenant_id, work)

    def _settled(self, turn: "_Turn") -> None:
        self._metrics.acknowledged.inc(turn.sent - turn.refused)
        self._metrics.refused.inc(turn.refused)
        self._metrics.lost.inc(turn.lost)
        if turn.lost:
            lost = "%s: retention removed %d entries before they were pushed"
            _log.error(lost, self._name, turn.lost)
        if turn.refused:
            # Without the target's words: they may quote what was sent.
            _log.error(
                "%s refused %d of %d decisions for good: its own log says why",
                self._name,
                turn.refused,
                turn.sent,
            )
        if self._failures and turn.sent:
            _log.warning("recovered: %s takes decisions again", self._name)
            self._failures = 0

    async def _wait(self, pause: float) -> None:
        """Wait for `pause` seconds, or until the service drains. The metric of the lag is updated
        meanwhile."""
        until = self._parts.clock.monotonic() + pause
        while (left := until - self._parts.clock.monotonic()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._parts.stopping.wait(), min(left, LAG_SECONDS))
                return
            if left > LAG_SECONDS:
                with suppress(SluiceError):
                    await self._waiting()


@dataclass(slots=True)
class _Turn:
    """The counts of one turn. `reached` holds, for each tenant's log, the entry after the last one
    that was sent."""

    sent: int = 0
    refused: int = 0
    lost: int = 0
    batches: int = 0
    reached: dict[str, int] = field(default_factory=dict)


DRAIN_SECONDS = 5.0


class ExportPush:
    """Pushes decisions to all export targets from this process."""

    def __init__(self, parts: ExportParts) -> None:
        self._parts = parts
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Push for as long as the app runs."""
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as group:
                for place, target in enumerate(self._parts.targets, 1):
                    loop = TargetLoop(self._parts, target, place, _sender(target))
                    group.create_task(loop.run())
            await self._parts.stopping.wait()
        finally:
            self._ended.set()

    async def ended(self) -> None:
        """Wait until the turns under way are acknowledged and saved, within a deadline. What is not
        saved by then is pushed again after the next start."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            _log.warning("an export target did not answer before the end of the service")


def _sender(target: ExportTarget) -> Sender:
    match target.protocol:
        case Protocol.otlp:
            return OtlpSender(target)
        case Protocol.syslog:
            return SyslogSender(target)
        case Protocol.file:
            return FileSender(target)
