"""The loop that keeps a working set current by way of Redis: hear of changes, fetch what of them is
held here, and have it confirmed that no news is no change.

    changes     a stream of signed heads; each says after which revision it comes, and what changed
    gap         a head that does not follow what we hold: everything held is compared with the set
    challenge   a number that only we know; a heartbeat that is signed and names it was made after
                it, so its revision is the store's of a moment after we asked. No clock is compared

Knows when to look and what to believe. Knows neither commands nor tables.
"""

import asyncio
import logging
import random
import sqlite3
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf

from policies.ground.canonical import b64
from policies.ground.clock import Clock
from policies.policy_set import PolicySet
from policies.set_head import Claim, Head, Heartbeat
from sidecar.policy_cache.feed import FeedFailed, Position
from sidecar.policy_cache.follow import FIRST_PAUSE, LONGEST_PAUSE, Refused
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.redis_set import RedisSet, Torn
from sidecar.policy_cache.supply import NotBrought
from sidecar.policy_cache.together import Together
from sidecar.policy_cache.working_set import ABSENT, Proven, WorkingSet
from sidecar.spool.trouble import Trouble

log = logging.getLogger(__name__)

LONGEST_INTERVAL = 4.0
FIRST_INTERVAL = 0.5
"""Seconds between challenges: once they are answered, and before."""
KEY_INTERVAL = 2.0
"""Seconds, at least, between two questions who signs."""
BRING_SECONDS = 2.0
TRIES = 8
CHUNK = 400
"""Documents that are read at once."""
_NONCE = 12
_OPEN_CHALLENGES = 16
_MISSING = 16


class Moved(Exception):
    """the set changed while it was read"""


class RedisFollower:
    """Follows a `RedisSet` into `working_set` and `policy_set`, and brings what is asked for.

    `refused`, `polls` and `failures` are as in `Follower`: a poll is a challenge. `meet` makes the
    `RedisSet` once it is known whose it is, `ask_key` asks the control API who signs. `kept` are
    names that are always wanted; `barred` says by what is held why this sidecar may not decide,
    None where it may.
    """

    def __init__(
        self,
        meet: Callable[[], Awaitable[RedisSet]],
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
        self._meet = meet
        self._ask_key = ask_key
        self._forged, self._key_due = 0, 0.0
        self._held = working_set
        self._policy_set = policy_set
        self._freshness = freshness
        self._clock = clock
        self._entropy = entropy
        self._kept = tuple(kept)
        self._barred = barred
        self._on_change = on_change
        self._on_other_store = on_other_store
        self._set: RedisSet | None = None
        self._stopped = False
        self._one_at_a_time = asyncio.Lock()
        self._together = Together(self._one_at_a_time, self._read_wanted)
        self._challenges: OrderedDict[str, tuple[float, int, Position]] = OrderedDict()
        self._due = 0.0
        self._answered = False
        self._missing: tuple[bytes, ...] = ()
        self._interval = min(LONGEST_INTERVAL, freshness.limit / 8)
        self._longest_pause = min(LONGEST_PAUSE, freshness.limit / 8)
        self._trouble = Trouble(log, "the policy set is not updated")
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
            except Torn as error:
                self._missing = error.fields[:_MISSING]
                self._trouble.is_(str(error))
            except FeedFailed as error:
                self._trouble.is_(str(error))
                self._lost_place()
            except Refused as error:
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
            self._set = await self._meet()
        now = self._clock.monotonic()
        if self._set.forged != self._forged and now >= self._key_due:
            await self._learn_key(self._set, now)
        place = await self._set.find_place()
        if now >= self._due:
            await self._challenge(self._set, now)
        if place or not self._holds(self._kept):
            await self._sync(self._kept, ())
        news = await self._set.news(max(0.001, self._due - self._clock.monotonic()))
        if news.heads:
            await self._sync((), news.heads)
        for beat in news.beats:
            await self._hear(beat)

    async def _learn_key(self, source: RedisSet, now: float) -> None:
        """Somebody lies, or signs by a key that follows the one we know: the control API says."""
        self._forged, self._key_due = source.forged, now + KEY_INTERVAL
        try:
            await self._ask_key()
        except FeedFailed as error:
            # What is signed by the key we know is still to be followed.
            log.warning("it can't be asked who signs the policy set: %s", error)

    async def bring(self, names: Iterable[str]) -> None:
        """`Supply.bring`."""
        try:
            async with asyncio.timeout(BRING_SECONDS):
                await self._together.bring(names)
        except TimeoutError:
            raise NotBrought(f"Redis did not answer within {BRING_SECONDS:g} s") from None
        except Torn as error:
            self._missing = error.fields[:_MISSING]
            self._due = 0.0
            raise NotBrought(str(error)) from error
        except (FeedFailed, Refused, sqlite3.Error) as error:
            raise NotBrought(str(error)) from error

    async def claim(self, session_id: str) -> Claim | None:
        """Whose the session is, as far as Redis tells; None where it does not, for any reason."""
        if self._set is None:
            return None
        try:
            claim = await self._set.claim(session_id)
        except FeedFailed:
            return None
        return claim if claim is not None and claim.epoch == self._held.position.epoch else None

    async def _sync(self, wanted: Iterable[str], heads: Sequence[Head]) -> None:
        """Bring the working set to the head in Redis, with the names that are wanted in it."""
        async with self._one_at_a_time:
            await self._catch_up(self._known_set(), set(wanted), list(heads))

    async def _read_wanted(self, wanted: set[str]) -> None:
        await self._catch_up(self._known_set(), wanted, [])

    def _known_set(self) -> RedisSet:
        if self._set is None:
            raise FeedFailed("it is not known yet whose policy set to read")
        return self._set

    async def _catch_up(self, source: RedisSet, wanted: set[str], heads: list[Head]) -> None:
        await source.find_place()
        for _ in range(TRIES):
            position = self._held.position
            changed, reached = _walked(position, heads)
            known = self._held.held(None if changed is None else sorted(changed | wanted))
            names = sorted(wanted.union(known if changed is None else known.keys() & changed))
            try:
                head, proven = await self._read(source, names, known)
                if head.epoch != position.epoch:
                    # Another store: nothing that is held says anything of it.
                    names = sorted(wanted.union(self._kept))
                    head, proven = await self._read(source, names, {})
            except Moved:
                continue
            if head.epoch == position.epoch:
                if head.revision < position.revision:
                    raise FeedFailed(
                        f"Redis has policy set `{head.revision}`, and `{position.revision}` was "
                        "seen already"
                    )
                if head.revision > reached:
                    more = await source.more_heads()
                    # Where nothing tells what lies between, all that is held is compared.
                    heads = heads + more if more else [_any(head, position)]
                if head.revision != reached:
                    continue
            self._put_in_force(head, proven, changed)
            return
        raise FeedFailed("the policy set in Redis changes faster than it can be read")

    async def _read(
        self, source: RedisSet, names: Sequence[str], known: Mapping[str, str]
    ) -> tuple[Head, dict[str, Proven]]:
        """What is not `known` of these names already, all of it under one head; else `Moved`."""
        heads: set[Head] = set()
        proven: dict[str, Proven] = {}
        if len(names) > CHUNK:
            # So many are compared, hardly changed: bodies are read of those alone that differ.
            names = [name async for name in self._differing(source, names, known, heads)]
        for at in range(0, max(1, len(names)), CHUNK):
            head, part = await source.read(names[at : at + CHUNK], known)
            heads.add(head)
            proven |= {name: each for name, each in part.items() if each is not None}
        if len(heads) != 1:
            raise Moved
        return heads.pop(), proven

    async def _differing(
        self,
        source: RedisSet,
        names: Sequence[str],
        known: Mapping[str, str],
        heads: set[Head],
    ) -> AsyncIterator[str]:
        for at in range(0, len(names), CHUNK):
            chunk = names[at : at + CHUNK]
            head, part = await source.read(chunk, known, bodies=False)
            heads.add(head)
            for name in chunk:
                if part.get(name, ABSENT) is not None:
                    yield name

    def _holds(self, names: Sequence[str]) -> bool:
        return len(self._held.held(names)) == len(names)

    def _put_in_force(
        self, head: Head, proven: dict[str, Proven], changed: set[str] | None
    ) -> None:
        former, position = self._held.position, Position(head.epoch, head.revision)
        if position == former and not proven:
            return
        self._held.put_in_force(position, proven)
        # No `await` between the two: no decision sees new documents under an old revision.
        if former.epoch != position.epoch:
            changed = None
        if changed is None:
            self._policy_set.reset(position.revision)
        else:
            self._policy_set.apply(changed, position.revision)
        if (why := self._barred()) is not None:
            self._freshness.expire(why)
        elif self._freshness.age() == inf:
            self._due = 0.0  # what barred us may be gone: ask at once
        if position == former:
            return  # documents were brought; none changed
        self._on_change(changed)
        if former.epoch and former.epoch != position.epoch:
            log.warning("the control API has another store than before: the copy was replaced")
            self._on_other_store()
        log.info("policy set `%s` is in force", position.revision)

    async def _challenge(self, source: RedisSet, now: float) -> None:
        if self._challenges and not self._answered:
            # Nobody answers: what we listen to may be another Redis than before.
            source.forget_place()
        interval = self._interval if self._answered else min(FIRST_INTERVAL, self._interval)
        self._due = now + interval * random.uniform(0.75, 1.0)  # noqa: S311  # spreads load
        self._answered = False
        nonce = b64(self._entropy(_NONCE))
        self._challenges[nonce] = now, self._clock.now(), self._held.position
        if len(self._challenges) > _OPEN_CHALLENGES:
            self._challenges.popitem(last=False)
        missing, self._missing = self._missing, ()
        self.polls += 1
        await source.challenge(nonce, missing)

    async def _hear(self, beat: Heartbeat) -> None:
        """What a heartbeat says that answers one of our challenges; others are for others."""
        ours = [self._challenges[nonce] for nonce in beat.nonces if nonce in self._challenges]
        if not ours:
            return
        self._answered = True
        sent, as_of, held = max(ours)
        position = self._held.position
        if beat.epoch == held.epoch and beat.revision < held.revision:
            raise Refused(
                f"policy set `{beat.revision}` is older than `{held.revision}`, which was "
                "seen of the same store"
            )
        if beat.epoch != position.epoch or beat.revision > position.revision:
            await self._sync((), ())
            position = self._held.position
        if beat.epoch == position.epoch and beat.revision <= position.revision:
            if (why := self._barred()) is not None:
                # What we hold is no longer ours to decide by.
                self._freshness.expire(why)
                raise FeedFailed(why)
            self._freshness.confirm(sent)
            self._held.confirm(as_of)
            self.refused = None
            self._trouble.over()

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


def _any(head: Head, position: Position) -> Head:
    """As if one change had led from `position` to `head`, of which nobody knows what it changed."""
    return Head(head.tenant_id, head.epoch, position.revision, head.revision, head.root, None)


def _walked(position: Position, heads: Iterable[Head]) -> tuple[set[str] | None, int]:
    """What changed from `position` on as far as the heads tell without a gap, None for any; and the
    revision that they reach."""
    changed: set[str] | None = set()
    reached = position.revision
    for head in heads:
        if head.epoch != position.epoch or head.revision <= reached:
            continue
        if head.since > reached:
            break
        changed = None if changed is None or head.names is None else changed | set(head.names)
        reached = head.revision
    return changed, reached
