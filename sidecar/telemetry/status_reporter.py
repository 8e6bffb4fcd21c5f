"""Tells the centre how this sidecar stands: every few seconds, and when another policy set is in
force; and learns the centre's time from the answer. Nothing here waits for it, and nothing depends
on it. Knows what is told; knows nothing of how it came about.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import orjson

from policies import __version__
from policies.ground.canonical import micros
from policies.ground.clock import Clock
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.control.clock import ControlClock
from sidecar.spool.state_logger import StateLogger

log = logging.getLogger(__name__)

PATH = "/v1/sidecars/report"
EVERY_SECONDS = 5.0
TOGETHER_SECONDS = 0.2
"""Changes that come so close are one report; and a fleet in which the same changed everywhere does
not report in step."""
ANSWER_SECONDS = 4.0

Standing = Callable[[], dict[str, Any]]


class StatusReporter:
    """The loop. `standing` is what is told beside the id of this run; `failures` counts reports
    that were not taken."""

    def __init__(
        self,
        centre: ControlClient,
        time: ControlClock,
        clock: Clock,
        run_id: str,
        standing: Standing,
    ) -> None:
        self.failures = 0
        self._centre = centre
        self._time = time
        self._monotonic = clock.monotonic
        self._run_id = run_id
        self._standing = standing
        self._news = asyncio.Event()
        self._trouble = StateLogger(log, "reporting to the control API")

    def wake(self) -> None:
        """There is something new to tell."""
        self._news.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            self._news.clear()
            await self.report()
            wait = EVERY_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311  # spreads load
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
                await asyncio.sleep(TOGETHER_SECONDS * random.random())  # noqa: S311
            except TimeoutError:
                pass

    async def report(self) -> None:
        """Tell it once. What fails is told again with the next."""
        body = orjson.dumps({**self._standing(), "run_id": self._run_id, "version": __version__})
        sent = self._monotonic()
        try:
            answer = await self._centre.post(PATH, body, seconds=ANSWER_SECONDS)
            told = micros(answer["now"])
        except (ControlUnavailable, KeyError, TypeError, ValueError) as error:
            self.failures += 1
            self._trouble.is_(str(error))
            return
        self._time.learn(told, sent, self._monotonic())
        self._trouble.over()
