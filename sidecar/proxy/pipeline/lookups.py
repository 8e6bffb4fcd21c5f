"""The look-ups of one request: what the sidecar asks the data source, with the agent's credentials,
to find out what the request concerns.

They run in the request's task, so the look-up under way is cancelled if the agent disconnects,
which is watched from the first look-up on. Together they have one deadline, and each distinct
target is fetched once. Knows no protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable

from policies.ground.errors import UpstreamFailed
from sidecar.http.headers import RequestHead
from sidecar.platform import eager
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import FetchedResponse

Fetch = Callable[[RequestHead, str], Awaitable[FetchedResponse]]
"""Asks the data source for a target, with the credentials in a head."""

_LONGEST_KEPT = 64 * 1024
"""The longest response that is kept, in bytes. This bounds what a request may hold in memory."""


class Lookups:
    """Call it with a target of the data source. `fetch` asks for one with the credentials in
    `head`. `seconds` is the time for all look-ups together, counted from the first, at which
    `watch` is called. Raises `OverBudget` and `UpstreamFailed`."""

    __slots__ = ("_budget", "_deadline", "_fetch", "_head", "_responses", "_seconds", "_watch")

    def __init__(
        self,
        fetch: Fetch,
        head: RequestHead,
        budget: Budget,
        seconds: float,
        watch: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._fetch = fetch
        self._head = head
        self._budget = budget
        self._seconds = seconds
        self._deadline: float | None = None
        self._responses: dict[str, FetchedResponse] = {}

    async def __call__(self, target: str) -> FetchedResponse:
        known = self._responses.get(target)
        if known is not None:
            return known
        # A target that was fetched already costs nothing: what counts is the load on the data
        # source.
        self._budget.charge_lookup()
        await eager.within_task()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
            self._watch()
        try:
            async with asyncio.timeout_at(self._deadline):
                response = await self._fetch(self._head, target)
        except TimeoutError:
            late = f"the look-ups took longer than {self._seconds:g} s"
            raise UpstreamFailed(late) from None
        if len(response.body) <= _LONGEST_KEPT:
            self._responses[target] = response
        return response
