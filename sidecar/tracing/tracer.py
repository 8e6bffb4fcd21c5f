"""Decides which requests are traced, and keeps their finished spans until they are exported.

A caller's decision counts: its `traceparent` says whether the trace is sampled. Requests without
one are sampled at the configured ratio. Knows no HTTP but that header.
"""

import math
from collections.abc import Callable, Sequence

from policies.ground.clock import Clock
from sidecar.tracing.trace import Span, Trace
from sidecar.tracing.trace_context import parse_traceparent

MAX_SPANS = 2048
"""Finished spans kept for the collector; further ones are dropped and counted."""


class Tracer:
    """`ratio`, 0 to 1, is the share of requests to sample among those that bring no decision."""

    def __init__(self, ratio: float, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self._ratio = ratio
        self._now = clock.now
        self._random = random_bytes
        self._spans: list[Span] = []
        self._left = self._draw()
        self.dropped = 0
        """Spans dropped because the collector took none."""

    def begin(self, traceparent: Sequence[bytes], *, proxied: bool) -> Trace | None:
        """The trace of a request with these `traceparent` headers; None if it is not sampled."""
        parent = parse_traceparent(traceparent)
        if parent is not None:
            if not parent.sampled:
                return None
        elif not self._sample():
            return None
        return Trace(parent, self._now, self._random, self._finished, proxied=proxied)

    def take(self, most: int) -> list[Span]:
        """The oldest finished spans, which are then the caller's."""
        taken, self._spans = self._spans[:most], self._spans[most:]
        return taken

    @property
    def waiting(self) -> int:
        return len(self._spans)

    def _sample(self) -> bool:
        if self._left > 1:
            self._left -= 1
            return False
        self._left = self._draw()
        return self._ratio > 0

    def _draw(self) -> int:
        """The number of requests until the next sampled one. Drawn at random for each, so that a
        client's rhythm can't fall in step with it; far cheaper than a draw for each request."""
        if self._ratio >= 1:
            return 1
        if self._ratio <= 0:
            return 1 << 62
        # The distribution of the gap between successes of independent draws.
        uniform = (int.from_bytes(self._random(7)) + 1) / (1 << 56)
        return 1 + int(math.log(uniform) / math.log1p(-self._ratio))

    def _finished(self, span: Span) -> None:
        if len(self._spans) >= MAX_SPANS:
            self.dropped += 1
            return
        self._spans.append(span)
