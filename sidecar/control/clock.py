"""The centre's time, as well as it is known here. Knows what the centre said and when it was asked;
knows nothing of how.

Sessions and keys expire, events are ordered and alerts measured by the centre's time; the clock of
this host may differ from it by an hour, or be set while we run. So what counts here is the
monotonic clock and one offset, which every exchange with the centre measures anew: its answer was
made at some moment between the question and the answer, so the middle is off by half that at most.
Until the first exchange the host's wall clock has to do.

A centre of several replicas has several clocks. What one exchange says against all that is known
is believed once the next says so too: one replica whose clock is wrong moves nothing by itself.
"""

from math import inf

from policies.ground.clock import Clock

DRIFT = 200e-6
"""Seconds a second that two clocks may drift apart: an exchange grows worse with age."""
STEP = 1_000_000
"""Microseconds: a smaller correction never turns time back, it waits; a larger one is a clock that
was set, and is followed where a second exchange in a row confirms it."""


class ControlClock:
    """`clock` is to be used in place of `host`; its `monotonic` is the host's own."""

    def __init__(self, host: Clock) -> None:
        self.host = host
        self._monotonic = host.monotonic
        self._offset = host.now() - int(host.monotonic() * 1e6)
        self._latest = 0
        self._error = inf
        self._measured = 0.0
        self._told_once: tuple[int, float] | None = None
        self.clock = Clock(self.now, host.monotonic)

    def now(self) -> int:
        """Microseconds since 1970 UTC; never before the last, unless a clock was set."""
        now = int(self._monotonic() * 1e6) + self._offset
        if now < self._latest:
            return self._latest
        self._latest = now
        return now

    def learn(self, told: int, sent: float, received: float) -> None:
        """The centre's clock said `told` (microseconds) between `sent` and `received` (monotonic
        seconds). An exchange that says less than what is known changes nothing."""
        error = (received - sent) / 2
        offset = told - int((sent + received) * 5e5)
        off = abs(offset - self._offset) / 1e6
        known = self._error + DRIFT * (received - self._measured)
        if error > known and off <= error + known:
            return
        if off * 1e6 > STEP:
            if off > error + known and not self._told_again(offset, error):
                return
            self._latest = 0
        self._offset, self._error, self._measured = offset, error, received
        self._told_once = None

    def _told_again(self, offset: int, error: float) -> bool:
        """Whether the last exchange that was not believed said about the same."""
        before, self._told_once = self._told_once, (offset, error)
        return before is not None and abs(offset - before[0]) <= STEP + (error + before[1]) * 1e6
