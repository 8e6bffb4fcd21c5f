"""Counts the keys that callers present and that are refused, and tells of them in the log now and
then: no decision is made for such a call, so neither a record nor a decision's metric shows it.

Knows why a key was refused. Never sees the key.
"""

import logging
from collections.abc import Callable

from policies.ground.errors import SluiceError
from sidecar.live_keys import ForeignKey, InvalidKey, WrongScope
from sidecar.metrics.counters import Counter
from sidecar.platform.state_logger import StateLogger

log = logging.getLogger(__name__)

REASONS = {
    "missing": "the call carries none",
    "unknown": "it is unknown or revoked",
    "expired": "it has expired",
    "scope": "its scope does not allow this",
    "foreign": "it is bound to an agent for which this sidecar may not decide",
}
"""Why a key is refused: the label in the metric, and the words in the log."""


class RefusedKeys:
    """`count` counts by the way in and the reason. `what` is what the log calls that which refuses,
    such as "check door". `monotonic` is a clock in seconds."""

    def __init__(self, count: Counter, what: str, monotonic: Callable[[], float]) -> None:
        self._count = count
        self._what = what
        self._monotonic = monotonic
        self._states: dict[str, StateLogger] = {}

    def refused(self, way: str, name: str, error: SluiceError) -> None:
        """Note a refusal with `error`. `way` is the label, and `name` the name in the log; both
        come from a closed set."""
        reason = _reason(error)
        self._count.add(way, reason)
        state = self._states.get(name)
        if state is None:
            where = f"the {self._what} `{name}`"
            state = self._states[name] = StateLogger(
                log, f"{where} refused a call for its key", f"{where} took a key", self._monotonic
            )
        state.failing(REASONS[reason])

    def taken(self, name: str) -> None:
        """Note that the key of a call was taken."""
        state = self._states.get(name)
        if state is not None and state.problem is not None:
            state.recovered()


def _reason(error: SluiceError) -> str:
    if isinstance(error, InvalidKey):
        return "expired" if error.expired else "unknown"
    if isinstance(error, WrongScope):
        return "scope"
    return "foreign" if isinstance(error, ForeignKey) else "missing"
