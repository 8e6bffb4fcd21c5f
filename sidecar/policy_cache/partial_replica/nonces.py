"""Nonces for challenges: a signed heartbeat that names one was made after the nonce was drawn,
so no clocks have to be compared. Sends nothing."""

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from policies.ground.canonical import b64
from policies.ground.clock import Clock
from policies.sets.signed_head import Heartbeat
from sidecar.policy_cache.feed import Position

MAX_INTERVAL = 3.0
FIRST_INTERVAL = 0.5
"""The most seconds between challenges are `MAX_INTERVAL` while they are answered, otherwise
`FIRST_INTERVAL`. This is well below `failover.AWAY_SECONDS`, so that one late answer does not make
Redis count as away."""
_NONCE_BYTES = 12
_MAX_OPEN = 16


class DrawnNonce(NamedTuple):
    """The time at which a nonce was drawn, in monotonic seconds and in microseconds since 1970 UTC,
    and the position held then."""

    at: float
    as_of: int
    held: Position


class Nonces:
    """`due` is when to send the next challenge, in monotonic seconds; `longest` caps the
    interval."""

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes], longest: float) -> None:
        self.due = 0.0
        self._clock = clock
        self._random_bytes = random_bytes
        self._interval = min(MAX_INTERVAL, longest)
        self._open: OrderedDict[str, DrawnNonce] = OrderedDict()
        self._answered = False

    @property
    def unanswered(self) -> bool:
        """True if challenges were sent, and none was answered since the last of them."""
        return bool(self._open) and not self._answered

    def draw(self, held: Position) -> str:
        """Draw the nonce for the next challenge."""
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
        """Return the last of our nonces that the heartbeat names; None if it names none."""
        ours = [self._open[nonce] for nonce in beat.nonces if nonce in self._open]
        if not ours:
            return None
        self._answered = True
        # The latest draw proves the smallest age.
        return max(ours)
