"""Limits the bytes of request bodies that a sidecar holds at once, over all connections and ports.

A body that the sidecar reads stays in memory until its request is answered. Without a common limit,
agents that start many large bodies and finish none would fill the memory. Counts bytes; knows no
request.
"""

from typing import Self

from policies.ground.errors import Unavailable

BODY_BUDGET_BYTES = 64 * 1024 * 1024
"""The most bytes of request bodies held at once: sixteen bodies of the largest size read."""

RETRY_AFTER_SECONDS = 1
"""How long a refused client is asked to wait."""


class BodyBudgetExceeded(Unavailable):
    """too many request bodies are being read at the moment; nothing was decided"""

    retry_after = RETRY_AFTER_SECONDS


class BodyBudget:
    """At most `limit` bytes. Each body holds its bytes through a lease of its own."""

    def __init__(self, limit: int = BODY_BUDGET_BYTES) -> None:
        self.limit = limit
        self.held = 0
        """Bytes held now."""
        self.refused = 0
        """Requests refused so far."""

    def lease(self) -> "Lease":
        """A lease for one body, released at the end of a `with` block."""
        return Lease(self)


class Lease:
    """The bytes that one body holds."""

    __slots__ = ("_budget", "_count")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def release(self) -> None:
        self._budget.held -= self._count
        self._count = 0

    def grow(self, count: int) -> None:
        """Hold `count` more bytes. Raises `BodyBudgetExceeded`, holding none of them, if that
        exceeds the limit."""
        budget = self._budget
        if budget.held + count > budget.limit:
            budget.refused += 1
            raise BodyBudgetExceeded
        budget.held += count
        self._count += count

    def shrink(self, count: int) -> None:
        """Hold `count` bytes less, of those held."""
        self._budget.held -= count
        self._count -= count
