"""The look-ups of one request: what the sidecar asks of the data source, in the agent's name, to
find out what the request is for.

They end with the request. They run in its task, so an agent that leaves cancels the one under way,
and together they have a deadline. Each distinct target is asked for once. Knows no protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import FetchedResponse

_KEPT_BYTES = 64 * 1024
"""A longer answer is not kept: what a request may hold in memory is bounded too."""


class Lookups:
    """`fetch` gets a target of the data source; `seconds` are for all of them together, counted
    from the first. To be called with a target. Raises `OverBudget` and `UpstreamFailed`."""

    __slots__ = ("_budget", "_fetch", "_known", "_seconds", "_until")

    def __init__(
        self, fetch: Callable[[str], Awaitable[FetchedResponse]], budget: Budget, seconds: float
    ) -> None:
        self._fetch = fetch
        self._budget = budget
        self._seconds = seconds
        self._until: float | None = None
        self._known: dict[str, FetchedResponse] = {}

    async def __call__(self, target: str) -> FetchedResponse:
        known = self._known.get(target)
        if known is not None:
            return known
        self._budget.charge_lookup()
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                answer = await self._fetch(target)
        except TimeoutError:
            late = f"the look-ups took longer than {self._seconds:g} s"
            raise UpstreamFailed(late) from None
        if len(answer.body) <= _KEPT_BYTES:
            self._known[target] = answer
        return answer
