"""A process that answers questions, one after the other, as the service sees it."""

import asyncio
import contextlib
import signal

from control_api.analyses.job import NO_MEMORY, SIZE, Answer, read_answer
from control_api.analyses.this_program import this_program

MODULE = "control_api.analyses"
CPU_SECONDS = 20
"""How much computing time a question may take."""
MEMORY = 768 * 1024 * 1024
"""How many bytes of memory a question may take."""
IDLE_SECONDS = 60
"""How long a process waits for another question before it ends."""
_TOO_LARGE = (
    f"the question needs more than {CPU_SECONDS} s of computing time or {MEMORY >> 20} MiB of "
    "memory: ask about fewer policies, or use fewer patterns in each"
)


class EndedError(Exception):
    """The process ended without an answer."""

    def __init__(self, code: int | None, errors: bytes) -> None:
        super().__init__(
            f"the analysis ended with {code}: {errors[-4000:].decode(errors='replace')}"
        )
        self._code = code

    @property
    def out_of_time(self) -> bool:
        """Whether it took more computing time than a question may."""
        return self._code == -signal.SIGXCPU

    def answer(self) -> Answer:
        """What to answer if the question was its first. Raises `RuntimeError` if it failed."""
        # Aborted is how a library written in Rust, such as pydantic's core, ends without memory.
        if self._code in (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGABRT, NO_MEMORY):
            return Answer(422, b"", _TOO_LARGE)
        raise RuntimeError(str(self))


class Child:
    """One process. Its owner asks one question at a time, and ends it."""

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
        """The answer to what `write_job` wrote. Raises `EndedError`. The process may have ended
        after an answer whose status is not 200."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if stdin.is_closing():
            raise EndedError(self._process.returncode, b"")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # seen below
            stdin.write(job)
            await stdin.drain()
        try:
            size = int.from_bytes(await stdout.readexactly(SIZE))
            return read_answer(await stdout.readexactly(size))
        except asyncio.IncompleteReadError:
            _, errors = await self._process.communicate()
            raise EndedError(self._process.returncode, errors) from None

    async def end(self) -> None:
        """Kill it, whatever it computes."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        # Reads what is left, so that the pipes are closed too.
        await self._process.communicate()
