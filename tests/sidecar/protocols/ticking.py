"""A clock that a test can advance."""

import time

from policies.ground.clock import Clock
from tests.support.proxy import CLOCK


class Ticking:
    """Runs with the machine's clock, `ahead` seconds ahead of it."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.clock = Clock(now=CLOCK.now, monotonic=lambda: time.monotonic() + self.ahead)
