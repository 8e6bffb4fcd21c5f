"""Waits until the alert loops of a running control API have looked again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from control_api.alerts.deliver import DeliveryLoop
from control_api.alerts.evaluator import AlertEvaluator
from tests.support.waiting import until

LOOPS = ((AlertEvaluator, "measure_grown"), (DeliveryLoop, "start_due"))


class Rounds:
    """How many rounds each loop has finished, of every control API in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._finished: Counter[object] = Counter()
        for loop, method in LOOPS:
            monkeypatch.setattr(loop, method, self._counted(getattr(loop, method)))

    def _counted(self, method: Any) -> Callable[[Any], Coroutine[Any, Any, None]]:
        async def counted(loop: Any) -> None:
            await method(loop)
            self._finished[loop] += 1

        return counted

    def wait(self, apis: int = 1) -> None:
        """Return once each loop of so many APIs has done a round that began after this call."""
        before = dict(self._finished)

        def done() -> bool:
            # The first round to end may have begun before.
            now = dict(self._finished)
            anew = [loop for loop, rounds in now.items() if rounds >= before.get(loop, 0) + 2]
            return len(anew) >= apis * len(LOOPS) and before.keys() <= set(anew)

        until("each loop has looked again", done)
