"""Runs analyses in a process of their own, within limits. Knows no question in particular."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from control_api.analyses.child import Child, EndedError
from control_api.analyses.job import Answer, Job, write_job
from policies.ground.errors import Invalid, Malformed, SluiceError, Unavailable

SECONDS = 60.0
"""How long a question may take on a busy machine."""
MAX_ANALYSES = 2
"""The maximum number of analyses at a time in this process; one for each tenant."""
REUSED = 1024 * 1024
"""Up to how many bytes of a question its process is kept for the next one. It would keep the memory
that a larger one took."""
_ERRORS: dict[int, type[SluiceError]] = {400: Malformed, 422: Invalid}


class Analyses:
    """The analyses under way, and a process that waits for the next one: to start it takes 0.2 s,
    longer than most questions. Close it at the end."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        self._idle: Child | None = None
        self._closed = False

    async def answer(self, tenant_id: str, job: Job) -> bytes:
        """The JSON that answers the question. Raises `Malformed` or `Invalid` if it can't be
        answered, `Unavailable` if too many analyses run or the machine is too busy."""
        with self.room(tenant_id):
            try:
                async with asyncio.timeout(SECONDS):
                    answer = await self._ask(write_job(job))
            except TimeoutError:
                raise Unavailable(
                    f"the analysis did not finish within {SECONDS:.0f} s: try again later"
                ) from None
        if answer.status != 200:
            raise _ERRORS[answer.status](answer.message, details=answer.details)
        return answer.body

    @contextlib.contextmanager
    def room(self, tenant_id: str) -> Iterator[None]:
        """Room for one more process that computes for long. Raises `Unavailable` if there is
        none."""
        # Refused, not queued: the body of each that waits would be in memory.
        if tenant_id in self._of or self._of.total() >= MAX_ANALYSES:
            raise Unavailable(
                f"an analysis for this tenant, or {MAX_ANALYSES} in all, are running already, the "
                "most at a time: try again later"
            )
        self._of[tenant_id] += 1
        try:
            yield
        finally:
            del self._of[tenant_id]

    async def close(self) -> None:
        """End the process that waits, and let none wait from now on."""
        self._closed = True
        child, self._idle = self._idle, None
        if child is not None:
            await child.end()

    async def _ask(self, job: bytes) -> Answer:
        child, self._idle = self._idle, None
        if child is not None:
            try:
                return await self._ask_child(child, job)
            except EndedError as ended:
                # Else it ended while it waited, was killed, or had little memory left.
                if ended.out_of_time:
                    return ended.answer()
        try:
            return await self._ask_child(await Child.start(), job)
        except EndedError as ended:
            return ended.answer()

    async def _ask_child(self, child: Child, job: bytes) -> Answer:
        kept = False
        try:
            answer = await child.ask(job)
            if answer.status == 200 and len(job) <= REUSED:
                kept = self._idle is None and not self._closed
            if kept:
                self._idle = child
            return answer
        finally:
            # Otherwise the time is up, or the service stops: what it computes serves no one.
            if not kept:
                await child.end()
