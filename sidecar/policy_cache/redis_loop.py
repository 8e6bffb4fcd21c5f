"""The loop that keeps a working set current by way of Redis: hear of changes, catch up with them,
and have it confirmed that no news is no change.

    changes     a stream of signed heads; each says after which revision it comes, and what changed
    gap         a head that does not follow what we hold: everything held is compared with the set
    challenge   a number that only we know; the revision of a heartbeat that names it is the store's
                of a moment after we asked

Knows when to look and what a heartbeat says of what is held. Knows neither commands nor tables.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from policies.sets.signed_head import Claim, Heartbeat
from sidecar.policy_cache.feed import FeedFailed, Position
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.incremental_sync import IncrementalSync
from sidecar.policy_cache.nonces import Nonces
from sidecar.policy_cache.poll_loop import FIRST_PAUSE, LONGEST_PAUSE, FeedRejected
from sidecar.policy_cache.redis_reader import RedisReader, TornRead
from sidecar.policy_cache.working_set import WorkingSet
from sidecar.spool.state_logger import StateLogger

log = logging.getLogger(__name__)

KEY_INTERVAL = 2.0
"""Seconds, at least, between two questions who signs."""
_MISSING = 16


class RedisLoop:
    """Follows a `RedisReader` into `working_set` and `policy_set`, and brings what is asked for.

    `refused`, `polls` and `failures` are as in `Follower`: a poll is a challenge. `meet` makes the
    `RedisReader` once it is known whose it is, `ask_key` asks the control API who signs. `kept` are
    names that are always wanted; `barred` says by what is held why this sidecar may not decide,
    None where it may. `catch_up` puts in force what was read, for this way and any other.

    `heard` is set by each heartbeat that confirms the set, and `heard_at` is when that was, in
    monotonic seconds. `well` says that nothing has failed since the last one.
    """

    def __init__(
        self,
        meet: Callable[[], Awaitable[RedisReader]],
        ask_key: Callable[[], Awaitable[None]],
        working_set: WorkingSet,
        policy_set: PolicySet,
        freshness: Freshness,
        clock: Clock,
        entropy: Callable[[int], bytes],
        kept: Sequence[str],
        barred: Callable[[], str | None],
        on_change: Callable[[Iterable[str] | None], None],
        on_other_store: Callable[[], None],
    ) -> None:
        self.refused: str | None = None
        self.polls = 0
        self.failures = 0
        self.well = True
        self.heard_at = clock.monotonic()
        self.heard = asyncio.Event()
        self._meet = meet
        self._ask_key = ask_key
        self._forged, self._key_due = 0, 0.0
        self._held = working_set
        self._policy_set = policy_set
        self._freshness = freshness
        self._clock = clock
        self._barred = barred
        self._on_change = on_change
        self._on_other_store = on_other_store
        self._set: RedisReader | None = None
        self._stopped = False
        self.catch_up = IncrementalSync(working_set, policy_set, kept, self._was_put)
        self._challenges = Nonces(clock, entropy, freshness.limit / 8)
        self._missing: tuple[bytes, ...] = ()
        self._longest_pause = min(LONGEST_PAUSE, freshness.limit / 8)
        self._trouble = StateLogger(log, "Redis does not keep the policy set current")
        policy_set.reset(working_set.position.revision)
        if working_set.as_of is not None:
            freshness.restore(working_set.as_of)

    @property
    def trouble(self) -> str | None:
        """Why the last look failed; None where it did not."""
        return self._trouble.now

    @property
    def forged(self) -> int:
        """What was in Redis and not signed by the log's key."""
        return 0 if self._set is None else self._set.forged

    async def run(self) -> None:
        """Never returns. Every failure is tried again: an old set denies by itself, in time."""
        failures = 0
        while not self._stopped:
            try:
                await self.step()
                failures = 0
                continue
            except TornRead as error:
                self._missing = error.fields[:_MISSING]
                self._trouble.is_(str(error))
            except FeedFailed as error:
                self._trouble.is_(str(error))
                self.well = False
                self._lost_place()
            except FeedRejected as error:
                self.refused = str(error)
                self._trouble.is_(self.refused)
            except sqlite3.Error as error:
                self._trouble.is_(f"its copy can't be written: {error}")
            self.failures += 1
            await asyncio.sleep(self._pause(failures))
            failures += 1
        raise asyncio.CancelledError

    def stop(self) -> None:
        """To be called before the loop is cancelled: on Python 3.11 a cancellation is lost that
        meets the end of a write to Redis."""
        self._stopped = True

    async def step(self) -> None:
        """A challenge if one is due, and what the streams tell until the next."""
        if self._held.damaged:
            self._start_over()
        if self._set is None:
            self._set = self.catch_up.source = await self._meet()
        now = self._clock.monotonic()
        if self._set.forged != self._forged and now >= self._key_due:
            await self._learn_key(self._set, now)
        place = await self._set.find_place()
        if now >= self._challenges.due:
            await self._challenge(self._set)
        if place or self.catch_up.lacks_kept():
            await self.catch_up.sync(kept=True)
        until = self._challenges.due - self._clock.monotonic()
        news = await self._set.news(max(0.001, until))
        if news.heads:
            await self.catch_up.sync(news.heads)
        for beat in news.beats:
            await self._hear(beat)

    async def _learn_key(self, source: RedisReader, now: float) -> None:
        """Somebody lies, or signs by a key that follows the one we know: the control API says."""
        self._forged, self._key_due = source.forged, now + KEY_INTERVAL
        try:
            await self._ask_key()
        except FeedFailed as error:
            # What is signed by the key we know is still to be followed.
            log.warning("it can't be asked who signs the policy set: %s", error)

    async def bring(self, names: Iterable[str]) -> None:
        """`IncrementalSync.bring`; fields that are missing or wrong are told with the next
        challenge."""
        try:
            await self.catch_up.bring(names)
        except TornRead as error:
            self._missing = error.fields[:_MISSING]
            self._challenges.due = 0.0
            raise

    async def claim(self, session_id: str) -> Claim | None:
        """Whose the session is, as far as Redis tells; None where it does not, for any reason."""
        if self._set is None:
            return None
        try:
            claim = await self._set.claim(session_id)
        except FeedFailed:
            return None
        return claim if claim is not None and claim.epoch == self._held.position.epoch else None

    async def _challenge(self, source: RedisReader) -> None:
        if self._challenges.unanswered:
            # What we listen to may be another Redis than before.
            source.forget_place()
        nonce = self._challenges.draw(self._held.position)
        missing, self._missing = self._missing, ()
        self.polls += 1
        await source.challenge(nonce, missing)

    async def _hear(self, beat: Heartbeat) -> None:
        """What a heartbeat says that answers one of our challenges; others are for others."""
        drawn = self._challenges.answered_by(beat)
        if drawn is None:
            return
        held, position = drawn.held, self._held.position
        if beat.epoch == held.epoch and beat.revision < held.revision:
            raise FeedRejected(
                f"policy set `{beat.revision}` is older than `{held.revision}`, which was "
                "seen of the same store"
            )
        if beat.epoch != position.epoch or beat.revision > position.revision:
            await self.catch_up.sync()
            position = self._held.position
        if beat.epoch == position.epoch and beat.revision <= position.revision:
            if (why := self._barred()) is not None:
                # What we hold is no longer ours to decide by.
                self._freshness.expire(why)
                raise FeedFailed(why)
            self._freshness.confirm(drawn.at)
            self._held.confirm(drawn.as_of)
            self.refused, self.well = None, True
            self._trouble.over()
            self.heard_at = self._clock.monotonic()
            self.heard.set()

    def _was_put(self, former: Position, changed: set[str] | None) -> None:
        if (why := self._barred()) is not None:
            self._freshness.expire(why)
        elif self._freshness.age() == inf:
            self._challenges.due = 0.0  # what barred us may be gone: ask at once
        position = self._held.position
        if position == former:
            return  # documents were brought; none changed
        self._on_change(changed)
        if former.epoch and former.epoch != position.epoch:
            log.warning("the control API has another store than before: the copy was replaced")
            self._on_other_store()
        log.info("policy set `%s` is in force", position.revision)

    def _start_over(self) -> None:
        log.warning("the policy set's copy is damaged: fetching it anew")
        self._held.start_over()
        self._policy_set.reset(0)
        self._on_change(None)

    def _lost_place(self) -> None:
        if self._set is not None:
            self._set.forget_place()

    def _pause(self, failures: int) -> float:
        """Seconds, with jitter: a fleet that lost its Redis must not come back in step."""
        ceiling = min(self._longest_pause, FIRST_PAUSE * (1 << min(failures, 10)))
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing
