"""A working set that follows Redis, and the control API's long poll while Redis is away.

    redis      the usual way: signed heads and heartbeats (`redis_follow`)
    control    once Redis has confirmed nothing for `AWAY_SECONDS` (`control_follow`)

Both write to one working set and feed one freshness clock, so a revision is never taken back by
changing the way, and the set's age is that of the last confirmation by either. Redis is tried all
the while; its next confirmation ends the long poll.

Knows when to change the way. Knows neither commands nor HTTP.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Iterable
from contextlib import suppress

from policies.ground.clock import Clock
from policies.sets.signed_head import Claim
from sidecar.policy_cache.control_follow import ControlFollower
from sidecar.policy_cache.document_fetcher import FetchFailed
from sidecar.policy_cache.feed import FeedFailed
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.poll_loop import FeedRejected
from sidecar.policy_cache.redis_loop import RedisLoop
from sidecar.policy_cache.redis_reader import TornRead
from sidecar.policy_cache.request_coalescer import RequestCoalescer

log = logging.getLogger(__name__)

AWAY_SECONDS = 5.0
"""For so long Redis may confirm nothing before the control API is followed; half the staleness
limit where that is less (contract, section 6)."""
JITTER = 0.2
"""The most that is added to that, as a share of it: a fleet that loses its Redis must not arrive at
the control API at once."""
BRING_SECONDS = 2.0
REDIS_SECONDS = 1.0
"""How long a decision may wait for documents, and how much of that for Redis."""


def patience(limit: float, chance: float) -> float:
    """Seconds that Redis may confirm nothing, under a staleness limit in seconds; `chance`, from 0
    to 1, is what spreads a fleet."""
    return min(AWAY_SECONDS, limit / 2) * (1 + JITTER * chance)


class Failover:
    """The loop (`Following`) and the supply (`Supply`) of a working set."""

    def __init__(
        self,
        redis: RedisLoop,
        control: ControlFollower,
        freshness: Freshness,
        clock: Clock,
    ) -> None:
        self.feed = "redis"
        self._redis = redis
        self._control = control
        self._monotonic = clock.monotonic
        self._limit = freshness.limit
        # Not the lock of `CatchUp`: a decision must not wait where a read of Redis hangs.
        self._together = RequestCoalescer(asyncio.Lock(), self._read)

    @property
    def refused(self) -> str | None:
        """Why the last answer of the way in use was not believed."""
        return self._redis.refused if self.feed == "redis" else self._control.refused

    @property
    def trouble(self) -> str | None:
        """What keeps either way from confirming the set."""
        troubles = (self._redis.trouble, self._control.trouble if self.feed == "control" else None)
        return "; ".join(each for each in troubles if each is not None) or None

    @property
    def polls(self) -> int:
        return self._redis.polls + self._control.polls

    @property
    def failures(self) -> int:
        return self._redis.failures + self._control.failures

    @property
    def forged(self) -> int:
        return self._redis.forged

    def stop(self) -> None:
        """`RedisLoop.stop`."""
        self._redis.stop()

    async def run(self) -> None:
        """Never returns."""
        self._redis.heard_at = self._monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._redis.run())
            while True:
                await self._silence()
                silent = self._monotonic() - self._redis.heard_at
                self._use("control", f"Redis has confirmed nothing for {silent:.1f} s")
                following = group.create_task(self._control.run())
                await self._redis.heard.wait()
                following.cancel()
                self._use("redis", "Redis confirms the policy set again")

    async def bring(self, names: Iterable[str]) -> None:
        """`Supply.bring`."""
        try:
            async with asyncio.timeout(BRING_SECONDS):
                await self._together.bring(names)
        except TimeoutError:
            raise FetchFailed(f"no answer within {BRING_SECONDS:g} s") from None
        except (FeedFailed, FeedRejected, sqlite3.Error) as error:
            raise FetchFailed(str(error)) from error

    async def claim(self, session_id: str) -> Claim | None:
        """Whose the session is, as far as Redis tells; None where it does not, for any reason."""
        if not self._redis.well:
            return None
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                return await self._redis.claim(session_id)
        except TimeoutError:
            self._redis.well = False
            return None

    async def _silence(self) -> None:
        """Returns once Redis has confirmed nothing for too long."""
        away = patience(self._limit, random.random())  # noqa: S311  # spreads load
        self._redis.heard.clear()
        while (left := self._redis.heard_at + away - self._monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._redis.heard.wait()
            self._redis.heard.clear()

    def _use(self, feed: str, why: str) -> None:
        trouble = self.trouble
        self.feed = feed
        if feed == "control":
            self._redis.well = False
            because = f" ({trouble})" if trouble else ""
            log.warning("%s%s: the policy set now comes from the control API", why, because)
        else:
            log.warning("%s: the policy set now comes from there", why)

    async def _read(self, names: set[str]) -> None:
        """From Redis while it is well, else from the control API; where one fails, from the other:
        a Redis that does not give a document may have lost it."""
        first, second = self._from_redis, self._control.bring
        if not self._redis.well:
            first, second = second, first
        try:
            return await first(names)
        except FeedFailed as error:
            failed = error
        try:
            await second(names)
        except FeedFailed as error:
            # `TornRead` tells which of the callers that wait together it is about.
            raise failed if isinstance(failed, TornRead) else error from None

    async def _from_redis(self, names: Iterable[str]) -> None:
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                await self._redis.bring(names)
        except TornRead:
            raise
        except TimeoutError:
            self._redis.well = False
            raise FeedFailed(f"Redis did not answer within {REDIS_SECONDS:g} s") from None
        except FeedFailed:
            # Until the next heartbeat, decisions ask the control API first.
            self._redis.well = False
            raise
