"""Keeps a partial replica current through Redis, by these means:

changes     a stream of signed heads; each names the revision it follows, and what changed
gap         a head that does not follow what we hold: compare everything held with the set
challenge   a nonce that only we know; a heartbeat that names it was signed after we asked, so
            the revision in it is current, and no clocks have to be compared
"""

import asyncio
import logging
import random
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import NamedTuple

from policies.ground.canonical import b64
from policies.ground.clock import Clock
from policies.ground.process.outage_logger import PAUSE_SECONDS, RepeatingOutageLogger
from policies.sets.signed_head import Claim, Heartbeat
from sidecar.policy_cache.feed import FeedFailed, FeedRejected, Position, reject_older
from sidecar.policy_cache.partial_replica.incremental_sync import IncrementalSync
from sidecar.policy_cache.partial_replica.redis_reader import RedisReader, TornRead
from sidecar.policy_cache.partial_replica.working_set import PartialState
from sidecar.policy_cache.replica import FeedLoop

MAX_INTERVAL = 3.0
FIRST_INTERVAL = 0.5
"""The most seconds between two challenges until one is answered; afterwards it is `MAX_INTERVAL`.
Well below `failover.AWAY_SECONDS`: one late answer must not make Redis count as away."""
_NONCE_BYTES = 12
_MAX_OPEN = 16

log = logging.getLogger(__name__)

KEY_INTERVAL = 2.0
"""The minimum number of seconds between two requests to the control API for the current signing
key."""
_MAX_DAMAGED = 16  # the control API reads no more fields of one report


class DrawnNonce(NamedTuple):
    """A nonce that was sent in a challenge: when it was made, in monotonic seconds (`at`) and in
    microseconds since 1970 UTC (`as_of`), and the position of the working set at that time."""

    at: float
    as_of: int
    held: Position


class Nonces:
    """Makes the nonces of challenges, and recognises them in heartbeats. `due` is the time to send
    the next challenge, in monotonic seconds; `longest` caps the seconds between two."""

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes], longest: float) -> None:
        self.due = 0.0
        self._clock = clock
        self._random_bytes = random_bytes
        self._interval = min(MAX_INTERVAL, longest)
        self._open: OrderedDict[str, DrawnNonce] = OrderedDict()
        self._answered = False

    @property
    def unanswered(self) -> bool:
        """True if challenges were sent, and none of them was answered since the last one was
        sent."""
        return bool(self._open) and not self._answered

    def draw(self, held: Position) -> str:
        now = self._clock.monotonic()
        interval = self._interval if self._answered else min(FIRST_INTERVAL, self._interval)
        self.due = now + interval * random.uniform(0.75, 1.0)  # noqa: S311  # spreads load
        self._answered = False
        # Unguessable: an attacker could otherwise have a heartbeat signed now and show it later as
        # proof that an old set is current.
        nonce = b64(self._random_bytes(_NONCE_BYTES))
        self._open[nonce] = DrawnNonce(now, self._clock.now(), held)
        # Bounded: unanswered challenges must not pile up while Redis is away.
        if len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)
        return nonce

    def answered_by(self, beat: Heartbeat) -> DrawnNonce | None:
        """Return the latest of our nonces that the heartbeat names; None if it names none of
        ours."""
        ours = [self._open[nonce] for nonce in beat.nonces if nonce in self._open]
        if not ours:
            return None
        self._answered = True
        # The latest draw proves the smallest age.
        return max(ours)


class RedisLoop(FeedLoop):
    """Applies what a `RedisReader` reads to the working set, and fetches documents on demand. Each
    challenge counts as a poll.

    `connect` makes the `RedisReader` once the tenant is known. `refresh_key` asks the control API
    which key signs now. `sync` puts in force what was read, for this loop and for `ControlLoop`.

    Each heartbeat that confirms the set sets the event `confirmed` and the time `confirmed_at`
    (monotonic seconds). `healthy` means that nothing has failed since the last such heartbeat.
    """

    def __init__(
        self,
        state: PartialState,
        connect: Callable[[], Awaitable[RedisReader]],
        refresh_key: Callable[[], Awaitable[None]],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        what, back = "Redis does not keep", "Redis keeps the policy set current again"
        pause, monotonic = state.freshness.limit / 8, state.clock.monotonic
        what = f"{what} the policy set current"
        super().__init__(RepeatingOutageLogger(log, what, back, monotonic), pause)
        self.healthy = True
        self.confirmed_at = state.clock.monotonic()
        self.confirmed = asyncio.Event()
        self._connect = connect
        self._refresh_key = refresh_key
        self._key_due, self._forgery_told = 0.0, -inf
        what = "can't ask the control API who signs the policy set"
        back = "the control API says who signs the policy set"
        self._asking = RepeatingOutageLogger(log, what, back, monotonic)
        self._state = state
        self._working_set = state.working_set
        self._clock = state.clock
        self._reader: RedisReader | None = None
        self._stopped = False
        self.sync = IncrementalSync(state, self._on_put_in_force)
        # Several challenges fit into the limit, so one lost answer makes nothing stale.
        self._nonces = Nonces(state.clock, random_bytes, pause)
        self._damaged_fields: tuple[bytes, ...] = ()
        state.restore(state.working_set)

    @property
    def forged(self) -> int:
        return 0 if self._reader is None else self._reader.check.forged

    async def run(self) -> None:
        """Follow Redis until stopped, and retry after every failure. Once the set held is too old,
        every retrieval is denied."""
        while not self._stopped:
            try:
                await self.step()
            except (FeedFailed, FeedRejected, sqlite3.Error) as error:
                if isinstance(error, TornRead):
                    # Redis answers; the control API repairs these fields once it is told.
                    self._damaged_fields = error.fields[:_MAX_DAMAGED]
                elif isinstance(error, FeedFailed):
                    self.healthy = False
                    if self._reader is not None:
                        self._reader.reset_streams()
                await asyncio.sleep(self._pause_after(error))
            else:
                self._backoff.reset()
        # After `stop`, end like a cancelled task, even if the cancellation itself was lost.
        raise asyncio.CancelledError

    def stop(self) -> None:
        """Prepare the loop for its cancellation: Python 3.11 loses a cancellation that coincides
        with the end of a write to Redis."""
        self._stopped = True

    async def step(self) -> None:
        """Send a challenge if one is due, and read the streams until the next one is due."""
        if self._working_set.damaged:
            self._state.start_over(self._working_set)
        if self._reader is None:
            self._reader = self.sync.source = await self._connect()
        now = self._clock.monotonic()
        # What is too large to be kept unverified counts already, and is told here.
        self._recheck(self._reader, (), now)
        if self._reader.check.unverified and now >= self._key_due:
            await self._learn_key(self._reader, now)
        # Before reading the set: the stream then brings each change that the read misses.
        from_the_end = await self._reader.find_stream_end()
        if now >= self._nonces.due:
            await self._challenge(self._reader)
        if from_the_end or self.sync.lacks_required():
            await self.sync.advance(required=True)
        news = await self._reader.news(max(0.001, (self._nonces.due - self._clock.monotonic())))
        if news.heads:
            await self.sync.advance(news.heads)
        for beat in news.beats:
            await self._on_heartbeat(beat)

    async def _learn_key(self, reader: RedisReader, now: float) -> None:
        """Ask the control API which key signs now, because an item in Redis is signed by an unknown
        key: it is forged, or the key was rotated."""
        self._key_due = now + KEY_INTERVAL
        # What arrives while we ask may be signed by a key that is newer than the answer.
        unverified = reader.check.unverified
        try:
            await self._refresh_key()
        except FeedFailed as error:
            # Keep following what the known key has signed. The rest stays unverified: without an
            # answer, nothing tells a rotation from a forgery.
            self._asking.failing(str(error))
            return
        except FeedRejected:
            # The known key does not endorse the one that the control API shows either.
            self._recheck(reader, unverified, now)
            raise
        self._asking.recovered()
        self._recheck(reader, unverified, now)

    def _recheck(self, reader: RedisReader, unverified: Iterable[bytes], now: float) -> None:
        wrong = reader.check.recheck(unverified)
        # An attacker chooses how often: the metric counts each, the log needs one.
        if wrong and now - self._forgery_told >= PAUSE_SECONDS:
            self._forgery_told = now
            log.error(
                "Redis holds what Sluice has not signed, so something else writes there: %s (%d in "
                "all since the start)", wrong[0], reader.check.forged,
            )  # fmt: skip

    async def fetch(self, names: Iterable[str]) -> None:
        """Fetch like `IncrementalSync.fetch`, but report missing or wrong fields to the control API
        with the next challenge."""
        try:
            await self.sync.fetch(names)
        except TornRead as error:
            self._damaged_fields = error.fields[:_MAX_DAMAGED]
            # The report goes with a challenge: send one now.
            self._nonces.due = 0.0
            raise

    async def claim(self, session_id: str) -> Claim | None:
        """Return the claim to the session that Redis holds; None if Redis gives no answer, for any
        reason."""
        try:
            claim = await self._reader.claim(session_id) if self._reader is not None else None
        except FeedFailed:
            return None
        # A claim that a former store of the control API published does not hold in the new one.
        epoch = self._working_set.position.epoch
        return claim if claim is not None and claim.epoch == epoch else None

    async def _challenge(self, reader: RedisReader) -> None:
        if self._nonces.unanswered:
            # Redis may have been replaced since then: the streams may differ from before.
            reader.reset_streams()
        nonce = self._nonces.draw(self._working_set.position)
        damaged, self._damaged_fields = self._damaged_fields, ()
        self.polls += 1
        await reader.challenge(nonce, damaged)

    async def _on_heartbeat(self, beat: Heartbeat) -> None:
        """Handle a heartbeat that answers one of our challenges. Ignore others, which are for other
        sidecars."""
        drawn = self._nonces.answered_by(beat)
        if drawn is None:
            return
        if self._reader is not None:
            self._reader.skip_heartbeats()
        # Compare with the revision held when we asked: a change that arrived after the question may
        # be newer than the heartbeat.
        reject_older(beat.epoch, beat.revision, drawn.held)
        position = self._working_set.position
        if beat.epoch != position.epoch or beat.revision > position.revision:
            await self.sync.advance()
            position = self._working_set.position
        if beat.epoch == position.epoch and beat.revision <= position.revision:
            self._state.require_unblocked()
            # The nonce was drawn before the heartbeat was signed: age counts from the draw.
            self._state.freshness.confirm(drawn.at)
            self._working_set.confirm(drawn.as_of)
            self.refused, self.healthy = None, True
            self._outage.recovered()
            self.confirmed_at = self._clock.monotonic()
            self.confirmed.set()

    def _on_put_in_force(self, former: Position, changed: set[str] | None) -> None:
        if (why := self._state.blocked()) is not None:
            self._state.freshness.expire(why)
        elif self._state.freshness.age() == inf:
            self._nonces.due = 0.0  # what blocked us may be gone: ask at once
        position = self._working_set.position
        if position == former:
            return  # documents were added; none changed
        self._state.announce(changed, former, position)
