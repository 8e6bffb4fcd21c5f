"""Shows the progress of a verification on a terminal. Knows no file."""

import sys
from collections.abc import Callable
from typing import TextIO

EVERY = 0.25
"""The seconds between two lines."""


class Progress:
    """Counts bytes and entries. Prints only if it was given a terminal and a clock."""

    def __init__(
        self,
        total: int | None = None,
        monotonic: Callable[[], float] | None = None,
        out: TextIO | None = None,
    ) -> None:
        """Count from 0. `total` is the number of bytes to come, None if unknown."""
        self.entries = 0
        self._total = total
        self._monotonic = monotonic
        self._out = out
        self._done = 0
        self._started = self._last = 0.0 if monotonic is None else monotonic()
        self._shown = False

    def advance(self, count: int) -> None:
        """Count `count` more bytes, or rows, that were read."""
        self._done += count
        if self._monotonic is None or self._out is None:
            return
        now = self._monotonic()
        if now - self._last < EVERY:
            return
        self._last = now
        rate = self.entries / max(now - self._started, 0.001)
        done = f"{self._done / 2**20:,.0f} MiB"
        if self._total:
            done = f"{min(100 * self._done // self._total, 100)} %"
        # The escape sequence clears what a longer line left.
        self._out.write(f"\r{self.entries:,} entries, {done}, {rate:,.0f} entries/s\x1b[K")
        self._out.flush()
        self._shown = True

    def end(self) -> None:
        """Remove the line."""
        if self._shown and self._out is not None:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._shown = False


def on_terminal(total: int | None, monotonic: Callable[[], float]) -> Progress:
    """Return a progress on standard error if that is a terminal, else one that prints nothing."""
    if not sys.stderr.isatty():
        return Progress()
    return Progress(total, monotonic, sys.stderr)
