"""The look-ups of one request: what the sidecar asks the data source, with the agent's credentials,
to find out what the request concerns.

They end with their client, which is watched from the first look-up on. Together they have one
deadline, and each distinct target is fetched once. Knows no protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable

from policies.ground.errors import UpstreamFailed
from sidecar.http.headers import RequestHead
from sidecar.platform import eager
from sidecar.platform.departure import Watch
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import FetchedResponse

Fetch = Callable[[RequestHead, str], Awaitable[FetchedResponse]]
"""Asks the data source for a target, with the credentials in a head."""

_LONGEST_KEPT = 64 * 1024
"""The longest response that is kept, in bytes. This bounds what a request may hold in memory."""


class Lookups:
    """Call it with a target of the data source. `fetch` asks for one with the credentials in
    `head`. `seconds` is the time for all look-ups together, counted from the first; `watch` says
    when the client leaves. Raises `OverBudget` and `UpstreamFailed`."""

    __slots__ = (
        "_budget", "_deadline", "_fetch", "_head", "_left", "_responses", "_seconds", "_under_way",
        "_watch",
    )  # fmt: skip

    def __init__(
        self,
        fetch: Fetch,
        head: RequestHead,
        budget: Budget,
        seconds: float,
        watch: Watch,
    ) -> None:
        self._watch = watch
        self._left = False
        self._under_way: asyncio.Timeout | None = None
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
            self._watch(self._end)
        try:
            async with asyncio.timeout_at(self._deadline) as self._under_way:
                response = await self._fetch(self._head, target)
        except TimeoutError:
            late = f"the look-ups took longer than {self._seconds:g} s"
            gone = "the client left while names were looked up for it"
            raise UpstreamFailed(gone if self._left else late) from None
        finally:
            self._under_way = None
        if len(response.body) <= _LONGEST_KEPT:
            self._responses[target] = response
        return response

    def _end(self) -> None:
        """The client has left: breaks the look-up under way off, and allows no other one."""
        self._left = True
        self._budget.end()
        loop = asyncio.get_running_loop()
        self._deadline = loop.time()
        # One whose time has just ended ends already, and can't be given another.
        if self._under_way is not None and not self._under_way.expired():
            self._under_way.reschedule(self._deadline)
