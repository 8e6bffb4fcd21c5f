"""Runs an analysis in a process of its own, within limits. Knows no question in particular."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Iterator

from control_api.analyses.job import NO_MEMORY, Answer, Job, read_answer, write_job
from control_api.analyses.this_program import this_program
from policies.ground.errors import Invalid, Malformed, SluiceError, Unavailable

MODULE = "control_api.analyses"
CPU_SECONDS = 20
"""How much computing time a question may take."""
SECONDS = 60.0
"""How long a question may take on a busy machine."""
MEMORY = 768 * 1024 * 1024
"""How many bytes of memory a question may take."""
MAX_ANALYSES = 2
"""The maximum number of analyses at a time in this process; one for each tenant."""
_TOO_LARGE = (
    f"the question needs more than {CPU_SECONDS} s of computing time or {MEMORY >> 20} MiB of "
    "memory: ask about fewer policies, or use fewer patterns in each"
)
_ERRORS: dict[int, type[SluiceError]] = {400: Malformed, 422: Invalid}


class Analyses:
    """The analyses under way."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    async def answer(self, tenant_id: str, job: Job) -> bytes:
        """The JSON that answers the question. Raises `Malformed` or `Invalid` if it can't be
        answered, `Unavailable` if too many analyses run or the machine is too busy."""
        with self._one(tenant_id):
            try:
                async with asyncio.timeout(SECONDS):
                    answer = await _ask(job)
            except TimeoutError:
                raise Unavailable(
                    f"the analysis did not finish within {SECONDS:.0f} s: try again later"
                ) from None
        if answer.status != 200:
            raise _ERRORS[answer.status](answer.message, details=answer.details)
        return answer.body

    @contextlib.contextmanager
    def _one(self, tenant_id: str) -> Iterator[None]:
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


async def _ask(job: Job) -> Answer:
    process = await asyncio.create_subprocess_exec(
        *this_program(MODULE),
        str(CPU_SECONDS),
        str(MEMORY),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate(write_job(job))
    finally:
        # The time is up, or the service stops: what it computes serves no one.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    answer = read_answer(out)
    if answer is not None:
        return answer
    # Aborted is how a library written in Rust, such as pydantic's core, ends without memory.
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGABRT, NO_MEMORY):
        return Answer(422, b"", _TOO_LARGE)
    raise RuntimeError(f"the analysis ended with {process.returncode}: {err[-4000:].decode()}")
