"""Switches a partial replica from Redis (`redis_loop`) to the control API's long poll
(`control_loop`) while Redis is away, and combines the lookups of several callers into one read.

Both loops write to one working set and one freshness clock, so a switch never goes back to an older
revision. Redis is retried all the time; the next time that it confirms the set, the long poll ends.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from policies.ground.clock import Clock
from policies.sets.signed_head import Claim
from sidecar.policy_cache.feed import FeedFailed, FeedRejected
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.partial_replica.control_loop import ControlLoop
from sidecar.policy_cache.partial_replica.redis_loop import RedisLoop
from sidecar.policy_cache.partial_replica.redis_reader import TornRead
from sidecar.policy_cache.policy_view import FetchFailed
from sidecar.policy_cache.replica import FeedName

MAX_WAITING = 256
"""The most callers that may wait for a lookup at a time. A further caller is refused at once."""
MAX_NAMES = 400
"""The most names of documents in one combined read."""

log = logging.getLogger(__name__)

AWAY_SECONDS = 5.0
"""The seconds without a confirmation from Redis after which the sidecar follows the control API;
half the staleness limit if that is less (`CONTRACT.md`, Settings)."""
JITTER = 0.2
"""The largest random addition to `AWAY_SECONDS`, as a fraction of it, so that the sidecars of a
fleet do not switch all at once."""
FETCH_SECONDS = 2.0
REDIS_SECONDS = 1.0
"""The most seconds that a decision waits for Redis; for documents it waits `FETCH_SECONDS` in
all."""


@dataclass(slots=True, eq=False)
class _Lookup:
    """One caller's lookup: the names it asks for, and the result. `alone` means that a combined
    read met a missing or damaged document, so this caller now reads by itself."""

    names: frozenset[str]
    done: bool = False
    alone: bool = False
    failure: FeedFailed | None = None


class RequestCoalescer:
    """Combines the lookups of all waiting callers into one call of `read`, which is made under
    `lock`. `read` raises `FeedFailed`."""

    def __init__(self, lock: asyncio.Lock, read: Callable[[set[str]], Awaitable[None]]) -> None:
        self._lock = lock
        self._read = read
        self._waiting: dict[_Lookup, None] = {}

    async def fetch(self, names: Iterable[str]) -> None:
        # An attacker who tries API keys causes a lookup with each: they must not fill the memory.
        if len(self._waiting) >= MAX_WAITING:
            raise FeedFailed("too many lookups of policy documents are waiting")
        lookup = _Lookup(frozenset(names))
        self._waiting[lookup] = None
        try:
            async with self._lock:
                # The caller that had the lock before us may have read for us too.
                if not lookup.done and lookup.failure is None:
                    await self._read_for_all(lookup)
        finally:
            del self._waiting[lookup]
        # A new exception for each: one instance raised in several tasks would mix up tracebacks.
        if lookup.failure is not None:
            raise FeedFailed(str(lookup.failure)) from lookup.failure

    async def _read_for_all(self, lookup: _Lookup) -> None:
        """Read the names of all waiting callers at once. If this task is cancelled, the next caller
        reads them all again."""
        group, names = self._group(lookup)
        try:
            await self._read(names)
        except TornRead:
            if len(group) == 1:
                raise
            # One document is missing or damaged. It must fail only the callers who asked for it.
            for each in group:
                each.alone = True
            await self._read(set(lookup.names))
        except FeedFailed as error:
            # The source itself failed, so a read for each caller alone would fail too.
            for each in group:
                each.failure = error
        else:
            for each in group:
                each.done = True

    def _group(self, lookup: _Lookup) -> tuple[list[_Lookup], set[str]]:
        """Return the lookups to serve together, with `lookup` first, and all their names."""
        group, names = [lookup], set(lookup.names)
        for each in () if lookup.alone else self._waiting:
            if each is lookup or each.alone or each.done or each.failure is not None:
                continue
            if len(names) + len(each.names) > MAX_NAMES:
                break  # not `continue`: callers are served in order
            group.append(each)
            names |= each.names
        return group, names


def away_after(limit: float, chance: float) -> float:
    """Return the seconds without any confirmation after which Redis counts as away, given a
    staleness limit of `limit` seconds. `chance`, a random number from 0 to 1, spreads the sidecars
    of a fleet."""
    return min(AWAY_SECONDS, limit / 2) * (1 + JITTER * chance)


class Failover:
    """Keeps a partial replica current from Redis or the control API: its `Follower` and its
    `DocumentFetcher`."""

    def __init__(
        self, redis: RedisLoop, control: ControlLoop, freshness: Freshness, clock: Clock
    ) -> None:
        self.feed: FeedName = "redis"
        self._redis = redis
        self._control = control
        self._monotonic = clock.monotonic
        self._limit = freshness.limit
        # Not the lock of `IncrementalSync`: a decision must not wait for a read of Redis that
        # hangs.
        self._coalescer = RequestCoalescer(asyncio.Lock(), self._read)
        self._apart = RequestCoalescer(asyncio.Lock(), self._read)

    @property
    def refused(self) -> str | None:
        """The reason why the last answer from the source in use was not trusted; None if it was."""
        return self._redis.refused if self.feed == "redis" else self._control.refused

    @property
    def problem(self) -> str | None:
        """The reason why neither Redis nor the control API confirms the set; None if one of them
        does."""
        problems = (self._redis.problem, self._control.problem if self.feed == "control" else None)
        return "; ".join(each for each in problems if each is not None) or None

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
        self._redis.stop()

    async def run(self) -> None:
        """Follow Redis, and the control API too while Redis is away, until cancelled."""
        # The start counts as a confirmation: give Redis its time before asking the control API.
        self._redis.confirmed_at = self._monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._redis.run())
            while True:
                await self._wait_until_away()
                silent = self._monotonic() - self._redis.confirmed_at
                self._switch_to("control", f"Redis has confirmed nothing for {silent:.1f} s")
                following = group.create_task(self._control.run())
                await self._redis.confirmed.wait()
                following.cancel()
                self._switch_to("redis", "Redis confirms the policy set again")

    async def fetch(self, names: Iterable[str], *, apart: bool = False) -> None:
        coalescer = self._apart if apart else self._coalescer
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                await coalescer.fetch(names)
        except TimeoutError:
            raise FetchFailed(f"no answer within {FETCH_SECONDS:g} s") from None
        except (FeedFailed, FeedRejected, sqlite3.Error) as error:
            raise FetchFailed(str(error)) from error

    async def claim(self, session_id: str) -> Claim | None:
        """Return the claim to the session that Redis holds; None if Redis gives no answer, for any
        reason."""
        # After None, the control API is asked: a failure costs time, but never gives a wrong owner.
        if not self._redis.healthy:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(REDIS_SECONDS):
                return await self._redis.claim(session_id)
        self._redis.healthy = False
        return None

    async def _wait_until_away(self) -> None:
        away = away_after(self._limit, random.random())  # noqa: S311  # spreads load
        self._redis.confirmed.clear()
        while (left := self._redis.confirmed_at + away - self._monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._redis.confirmed.wait()
            self._redis.confirmed.clear()

    def _switch_to(self, feed: FeedName, why: str) -> None:
        problem = self.problem
        self.feed = feed
        # The problem from before the switch, since that is the cause.
        if feed == "control":
            self._redis.healthy = False
            cause = f" ({problem})" if problem else ""
            log.warning("%s%s: the policy set now comes from the control API", why, cause)
        else:
            log.warning("%s: the policy set now comes from Redis", why)

    async def _read(self, names: set[str]) -> None:
        """Fetch documents from Redis while Redis is healthy, otherwise from the control API. If one
        source fails, try the other: a Redis that lacks a document may have lost it."""
        first, second = self._from_redis, self._control.fetch
        # Redis comes second from its first failure on, not only after `AWAY_SECONDS`: no decision
        # may wait for a Redis that hangs.
        if not self._redis.healthy:
            first, second = second, first
        try:
            return await first(names)
        except FeedFailed as error:
            failed = error
        try:
            await second(names)
        except FeedFailed as error:
            # Prefer a `TornRead`: the coalescer then fails only the callers whose document is torn.
            raise failed if isinstance(failed, TornRead) else error from None

    async def _from_redis(self, names: Iterable[str]) -> None:
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                await self._redis.fetch(names)
        except TornRead:
            raise
        # Until the next heartbeat, decisions ask the control API first.
        except TimeoutError:
            self._redis.healthy = False
            raise FeedFailed(f"Redis did not answer within {REDIS_SECONDS:g} s") from None
        except FeedFailed:
            self._redis.healthy = False
            raise
