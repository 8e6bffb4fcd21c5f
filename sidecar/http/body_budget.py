"""How many bytes of request bodies a sidecar holds at once, over all its connections and ports.

A body that is judged is held until its request is answered. Without a common limit, agents that
begin many large bodies and finish none would fill the memory. Knows bytes. Knows no request.
"""

from typing import Self

from policies.ground.errors import Unavailable

BODY_BUDGET_BYTES = 64 * 1024 * 1024
"""The most bytes of request bodies that are held at once: sixteen of the largest that is judged."""

RETRY_AFTER_SECONDS = 1
"""When a client that was turned away may come again."""


class BodyBudgetExceeded(Unavailable):
    """too many request bodies are being read at the moment; nothing was decided"""

    retry_after = RETRY_AFTER_SECONDS


class BodyBudget:
    """At most `most` bytes. Every body is counted by a lease of its own."""

    def __init__(self, most: int = BODY_BUDGET_BYTES) -> None:
        self._most = most
        self.held = 0
        """Bytes at the moment."""
        self.refused = 0
        """Requests that were turned away so far."""

    def lease(self) -> "Lease":
        """What one body holds, until the end of a `with` block."""
        return Lease(self)

    def take(self, count: int) -> None:
        """Raises `BodyBudgetExceeded` where these bytes would be too many, and takes none."""
        if self.held + count > self._most:
            self.refused += 1
            raise BodyBudgetExceeded
        self.held += count

    def give_back(self, count: int) -> None:
        self.held -= count


class Lease:
    """The bytes of one body."""

    __slots__ = ("_budget", "_count")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.give_back(self._count)
        self._count = 0

    def grow(self, count: int) -> None:
        """So many bytes more. Raises `BodyBudgetExceeded`."""
        self._budget.take(count)
        self._count += count
