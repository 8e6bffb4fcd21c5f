"""Varies the intervals of periodic work, so that replicas don't all do it at once."""

from collections.abc import Callable

JITTER = 0.2
"""The fraction by which an interval varies, so that replicas that started together don't purge
together."""


def jitter(entropy: Callable[[int], bytes]) -> float:
    """Return a random factor between 1 - `JITTER` and 1 + `JITTER`."""
    return 1 + JITTER * (int.from_bytes(entropy(2), "big") / 0x8000 - 1)
