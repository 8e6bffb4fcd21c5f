"""Runs analyses of policies in a separate process, one after the other, within limits of time and
memory. A question to the process and its answer travel as bytes through pipes."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from control_api.this_program import this_program
from policies.ground.errors import Invalid, Malformed, SluiceError, Unavailable

NO_MEMORY = 3
"""The exit code of an analysis process that ran out of memory."""
SIZE = 8
"""The length in bytes of the prefix that gives the size of a job or an answer, big-endian."""


class Job(NamedTuple):
    """A question to the analysis process: its name, its options, and JSON documents that are not
    decoded yet."""

    question: str
    options: Mapping[str, Any]
    parts: Sequence[bytes]


class Answer(NamedTuple):
    """The answer to a job: the JSON of a response, or the reason why there is none, as an HTTP
    status, a message and lines of details."""

    status: int
    body: bytes
    message: str = ""
    details: str | None = None


def write_job(job: Job) -> bytes:
    head = {"question": job.question, "options": job.options, "sizes": [*map(len, job.parts)]}
    return _sized(b"\n".join((orjson.dumps(head), b"".join(job.parts))))


def read_job(raw: bytes) -> Job:
    """Parse a job. `raw` is the job without its size prefix."""
    line, _, rest = raw.partition(b"\n")
    head = orjson.loads(line)
    parts, at = [], 0
    for size in head["sizes"]:
        parts.append(rest[at : at + size])
        at += size
    return Job(head["question"], head["options"], parts)


def write_answer(answer: Answer) -> bytes:
    head = {"status": answer.status, "message": answer.message, "details": answer.details}
    return _sized(b"\n".join((orjson.dumps(head), answer.body)))


def read_answer(raw: bytes) -> Answer:
    """Parse an answer. `raw` is the answer without its size prefix."""
    line, _, body = raw.partition(b"\n")
    head = orjson.loads(line)
    return Answer(head["status"], body, head["message"], head["details"])


def _sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(SIZE) + raw


MODULE = "control_api.policy.analyses"
CPU_SECONDS = 20
"""The most seconds of CPU time that a question may take."""
MEMORY = 768 * 1024 * 1024
"""The most bytes of memory (address space) that the analysis process may use."""
IDLE_SECONDS = 60
"""The seconds for which an idle analysis process waits for another question before it ends."""
_TOO_LARGE = (
    f"the question needs more than {CPU_SECONDS} s of computing time or {MEMORY >> 20} MiB of "
    "memory: ask about fewer policies, or use fewer patterns in each"
)


class AnalysisProcessDied(Exception):
    """The analysis process ended without an answer."""

    def __init__(self, code: int | None, errors: bytes) -> None:
        super().__init__(
            f"the analysis ended with {code}: {errors[-4000:].decode(errors='replace')}"
        )
        self._code = code

    @property
    def out_of_time(self) -> bool:
        """True if the process was ended because the question took more CPU time than allowed."""
        return self._code == -signal.SIGXCPU

    def answer(self) -> Answer:
        """Return the answer to give in place of the missing one, which says that the question is
        too large. Raise `RuntimeError` if the process ended for another reason than its limits.
        Unless the process ran out of time, call this only for its first question: otherwise, an
        earlier one may have used up the memory."""
        # Aborted is how a library written in Rust, such as pydantic's core, ends without memory.
        if self._code in (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGABRT, NO_MEMORY):
            return Answer(422, b"", _TOO_LARGE)
        raise RuntimeError(str(self))


class Child:
    """A running analysis process. Its owner asks it one question at a time, and ends it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> "Child":
        limits = map(str, (CPU_SECONDS, MEMORY, IDLE_SECONDS))
        pipe = asyncio.subprocess.PIPE
        command = *this_program(MODULE), *limits
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            # A Ctrl-C in a terminal is for the service, which then ends this process.
            start_new_session=True,
        )
        return cls(process)

    async def ask(self, job: bytes) -> Answer:
        """Send a job, as `write_job` encoded it, and return the answer. Raise `AnalysisProcessDied`
        if the process ends without one. After an answer whose status is not 200, the process may
        have ended too."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if stdin.is_closing():
            raise AnalysisProcessDied(self._process.returncode, b"")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # seen below
            stdin.write(job)
            await stdin.drain()
        try:
            size = int.from_bytes(await stdout.readexactly(SIZE))
            return read_answer(await stdout.readexactly(size))
        except asyncio.IncompleteReadError:
            _, errors = await self._process.communicate()
            raise AnalysisProcessDied(self._process.returncode, errors) from None

    async def end(self) -> None:
        """Kill the process, whatever it is doing."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        # Reads what is left, so that the pipes are closed too.
        await self._process.communicate()


SECONDS = 60.0
"""The most seconds that an analysis may take in all, which matters on a busy machine."""
MAX_ANALYSES = 2
"""The most analyses that this process runs at a time. A tenant may have only one of them."""
REUSED = 1024 * 1024
"""The most bytes of a question after which its analysis process is kept for the next question. A
larger question could leave the process with too much memory."""
_ERRORS: dict[int, type[SluiceError]] = {400: Malformed, 422: Invalid}


class Analyses:
    """Runs analyses, and keeps one idle analysis process for the next one: to start a process takes
    0.2 s, longer than most questions. Call `close` at the end."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        self._idle: Child | None = None
        self._closed = False

    async def answer(self, tenant_id: str, job: Job) -> bytes:
        """Return the JSON that answers the question. Raise `Malformed` or `Invalid` if it can't be
        answered, and `Unavailable` if too many analyses are running or the machine is too busy."""
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
        """Reserve one of the `MAX_ANALYSES` places for the tenant while the context lasts. Raise
        `Unavailable` if none is free, or if the tenant already has one."""
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
        """End the idle process, and keep no process from now on."""
        self._closed = True
        child, self._idle = self._idle, None
        if child is not None:
            await child.end()

    async def _ask(self, job: bytes) -> Answer:
        child, self._idle = self._idle, None
        if child is not None:
            try:
                return await self._ask_child(child, job)
            except AnalysisProcessDied as ended:
                # Else it ended while it waited, was killed, or had little memory left.
                if ended.out_of_time:
                    return ended.answer()
        try:
            return await self._ask_child(await Child.start(), job)
        except AnalysisProcessDied as ended:
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
