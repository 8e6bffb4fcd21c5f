"""Numbers that only this sidecar knows, drawn one after the other: a heartbeat that is signed and
names one was made after it was drawn. No two clocks are compared. Sends nothing.
"""

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from policies.ground.canonical import b64
from policies.ground.clock import Clock
from policies.sets.signed_head import Heartbeat
from sidecar.policy_cache.feed import Position

LONGEST_INTERVAL = 3.0
FIRST_INTERVAL = 0.5
"""Seconds between challenges: once they are answered, and before. Well below
`failover.AWAY_SECONDS`, so that one late answer does not make Redis count as away."""
_NONCE = 12
_OPEN = 16


class DrawnNonce(NamedTuple):
    """When a number was drawn, in monotonic seconds and in microseconds since 1970 UTC, and what
    was held then."""

    at: float
    as_of: int
    held: Position


class Nonces:
    """`due` is when the next is to be sent, in monotonic seconds; `most` what may lie between
    two."""

    def __init__(self, clock: Clock, entropy: Callable[[int], bytes], most: float) -> None:
        self.due = 0.0
        self._clock = clock
        self._entropy = entropy
        self._interval = min(LONGEST_INTERVAL, most)
        self._open: OrderedDict[str, DrawnNonce] = OrderedDict()
        self._answered = False

    @property
    def unanswered(self) -> bool:
        """Whether the last one was sent and nobody has answered any since."""
        return bool(self._open) and not self._answered

    def draw(self, held: Position) -> str:
        """The next one's number."""
        now = self._clock.monotonic()
        interval = self._interval if self._answered else min(FIRST_INTERVAL, self._interval)
        self.due = now + interval * random.uniform(0.75, 1.0)  # noqa: S311  # spreads load
        self._answered = False
        nonce = b64(self._entropy(_NONCE))
        self._open[nonce] = DrawnNonce(now, self._clock.now(), held)
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return nonce

    def answered_by(self, beat: Heartbeat) -> DrawnNonce | None:
        """The last of ours that it names; None where it is for others."""
        ours = [self._open[nonce] for nonce in beat.nonces if nonce in self._open]
        if not ours:
            return None
        self._answered = True
        return max(ours)
