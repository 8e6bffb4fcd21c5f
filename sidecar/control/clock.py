"""Estimates the control API's time: this host's monotonic clock plus an offset that every exchange
updates. The expiry of sessions and keys, the order of events and the times of alerts follow that
time, from which this host's own clock may differ by an hour."""

from math import inf

from policies.ground.clock import Clock

DRIFT = 200e-6
"""Seconds per second by which two clocks may drift apart. A measurement of the offset gets that
much less precise with age."""
STEP = 1_000_000
"""A difference in microseconds that tells two cases apart. A smaller correction never turns time
back: the clock waits. A larger one means that a clock was set; it is followed once a second
exchange in a row confirms it."""


class ControlClock:
    """Gives the control API's time on this host. Use its `clock` in place of the clock `host`; its
    `monotonic` is the host's own."""

    def __init__(self, host: Clock) -> None:
        self.host = host
        self._monotonic = host.monotonic
        # Until the first exchange, the host's wall clock counts.
        self._offset = host.now() - int(host.monotonic() * 1e6)
        self._latest = 0
        self._error = inf
        self._measured = 0.0
        self._unconfirmed: tuple[int, float] | None = None
        self.clock = Clock(self.now, host.monotonic)

    def now(self) -> int:
        """Return the estimated microseconds since 1970 UTC. Never goes back, unless a clock was
        set."""
        # A small correction backwards makes time stand still for a moment: records stay in order.
        now = int(self._monotonic() * 1e6) + self._offset
        if now < self._latest:
            return self._latest
        self._latest = now
        return now

    def learn(self, reported: int, sent: float, received: float) -> None:
        """Update the offset from one exchange: the control API's clock said `reported`
        (microseconds) at some moment between `sent` and `received` (monotonic seconds). Nothing
        changes if the exchange is less precise than the current offset and agrees with it."""
        # The answer was made at some moment in between, so the midpoint is off by at most this.
        error = (received - sent) / 2
        offset = reported - int((sent + received) * 5e5)
        off = abs(offset - self._offset) / 1e6
        # What is known gets less precise as the clocks drift apart.
        known = self._error + DRIFT * (received - self._measured)
        # Less precise than what is known, and consistent with it: nothing to learn.
        if error > known and off <= error + known:
            return
        if off * 1e6 > STEP:
            # A control API of several replicas has several clocks. An offset that contradicts
            # what is known counts once the next exchange agrees: one wrong clock changes nothing.
            if off > error + known and not self._confirmed(offset, error):
                return
            # The clock was set: let time jump, even backwards.
            self._latest = 0
        self._offset, self._error, self._measured = offset, error, received
        self._unconfirmed = None

    def _confirmed(self, offset: int, error: float) -> bool:
        """Return whether this offset is about the same as the one in the last exchange that was not
        trusted."""
        before, self._unconfirmed = self._unconfirmed, (offset, error)
        return before is not None and abs(offset - before[0]) <= STEP + (error + before[1]) * 1e6
