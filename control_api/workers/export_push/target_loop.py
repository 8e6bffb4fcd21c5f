"""Pushes the decisions of all tenants to one target, turn by turn.

    waiting    the logs with entries that the target has not acknowledged
    claim      one of them: the lease keeps another replica from pushing it too
    send       its next decisions, in log order; then those of the next log
    settle     the target has all that was sent in this turn
    save       the positions behind it, while the leases are held

INVARIANT: a position is saved only after `settle`. If we die between the two, or the target goes
away, what was sent since the last save is sent again: at least once, and never out of order.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from control_api.app_context import AppContext
from control_api.security.export_targets import ExportTarget
from control_api.store.queries import export_positions
from control_api.store.queries.export_positions import Waiting
from control_api.store.transaction import Transaction
from control_api.workers.export_push.batch import read_batch
from control_api.workers.export_push.senders.sender import Sender, TargetAway
from policies.ground.errors import SluiceError

POLL_SECONDS = 1.0
TURN_SECONDS = 1.0
"""Seconds after which what was sent is settled. A kill repeats about as much."""
ANSWER_SECONDS = 8.0
"""Until a target that does not take a batch, or does not acknowledge a turn, counts as away."""
ONLY_PROCESS = "only process"
LEASE = 30_000_000
"""Microseconds; longer than a turn takes at the most."""
RENEW = 22_000_000
"""A lease that lasts this long is not claimed again before a turn."""
MAX_BATCH, BATCH_BYTES = 500, 2 * 1024 * 1024
"""Decisions of a batch, and the bytes that it should have, by the batch before it."""
FIRST_BATCH = 50
BATCHES = 20
"""The most batches of a turn."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""The longest pause after the first failure, and after any, in seconds: it doubles each time, and
the actual pause is random (full jitter)."""
LAG_SECONDS = 5.0
"""How often the lag is read during a longer pause."""
T = TypeVar("T")
_log = logging.getLogger("sluice.exports")


class TargetLoop:
    """One target. `place` is its place in the setting, from 1."""

    def __init__(self, app: AppContext, target: ExportTarget, place: int, sender: Sender) -> None:
        self._app = app
        self._target = target
        self._name = f"export target {place} (`{target.shown}`)"
        self._sender = sender
        self._metrics = app.instruments.exports.of(place)
        # SQLite has one process, which need not wait for its own lease after a kill.
        alone = app.settings.database_url.startswith("sqlite")
        self._lease = ONLY_PROCESS if alone else app.entropy(16).hex()
        self._held: set[str] = set()
        self._last = ""
        self._limit = FIRST_BATCH
        self._failures = 0

    async def run(self) -> None:
        """Runs until the service drains; then ends its turn, and lets others continue at once."""
        while not self._app.stopping.is_set():
            await self._wait(await self._turn_or_pause())
        if self._failures == 0:
            await self._turn_or_pause()
        await self._sender.abandon()
        with suppress(SluiceError):
            for tenant_id in self._held:
                await self._save(tenant_id, None, 0)

    async def _turn_or_pause(self) -> float:
        """One turn. Returns the seconds until the next."""
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
        """Push what waits, for about a second. Returns whether more waits."""
        monotonic, turn = self._app.clock.monotonic, _Turn()
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
        """The logs that wait, those first that follow the last turn's last."""
        async with self._app.store.reading_all_tenants() as connection:
            found = await export_positions.waiting(connection, self._target.identity)
        self._metrics.lag.set(sum(each.lag for each in found))
        return sorted(found, key=lambda each: (each.tenant_id <= self._last, each.tenant_id))

    async def _claim(self, log: Waiting) -> int | None:
        """The first entry to push; None if another process pushes this log."""
        now = self._app.clock.now()
        if log.leased_until is not None and log.leased_until > now:
            if log.lease != self._lease:
                return None
            if log.leased_until > now + RENEW:
                return log.next_seq

        async def work(tx: Transaction) -> int | None:
            key = (tx.tenant_id, self._target.identity, self._lease)
            return await export_positions.claim(tx.connection, *key, tx.now, tx.now + LEASE)

        first = await self._app.store.write(log.tenant_id, work)
        if first is not None:
            self._held.add(log.tenant_id)
        return first

    async def _push(self, log: Waiting, first: int, turn: "_Turn") -> bool:
        """Send the next batch of a log. Returns whether there is more."""
        part, encode = range(first, log.size), self._sender.encode
        batch = await read_batch(self._app.store, log.tenant_id, part, self._limit, encode)
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
            return await export_positions.save(tx.connection, *key, until, next_seq)

        return await self._app.store.write(tenant_id, work)

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
        """Wait, or until the service drains. The lag stays current meanwhile."""
        until = self._app.clock.monotonic() + pause
        while (left := until - self._app.clock.monotonic()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._app.stopping.wait(), min(left, LAG_SECONDS))
                return
            if left > LAG_SECONDS:
                with suppress(SluiceError):
                    await self._waiting()


@dataclass(slots=True)
class _Turn:
    """What one turn has sent. `reached` is, for each log, the entry after the last."""

    sent: int = 0
    refused: int = 0
    lost: int = 0
    batches: int = 0
    reached: dict[str, int] = field(default_factory=dict)
