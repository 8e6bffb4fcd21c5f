"""The analysis process: reads jobs from standard input and writes the answer to each on standard
output. It ends when its input ends, or when no job arrives for `IDLE_SECONDS`.

python -m control_api.policy.analyses CPU_SECONDS MEMORY IDLE_SECONDS      started by `process.py`
"""

import os
import resource
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

from control_api.policy.analyses.process import NO_MEMORY, SIZE, Answer, read_job, write_answer
from control_api.policy.analyses.questions import QUESTIONS
from policies.analysis.names import TooManyClasses
from policies.ground.errors import SluiceError

MAX_DETAIL_LINES = 100
"""The most lines of details in an answer."""
MAX_KEPT = 192 * 1024 * 1024
"""The most bytes of resident memory with which the process waits for another question. If it holds
more, it ends after its answer."""


def main(arguments: list[str]) -> int:
    """Answer jobs until the input ends, the process is idle for too long, or it holds too much
    memory. Return the exit code."""
    seconds, memory, idle = map(int, arguments)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # where a sandbox forbids it
        os.nice(10)  # evaluations come first
    try:
        while _has_room() and (job := _next_job(idle, seconds)) is not None:
            sys.stdout.buffer.write(write_answer(_answer(job)))
            sys.stdout.buffer.flush()
    except MemoryError:
        return NO_MEMORY
    except SystemError as error:
        # What orjson raises where it runs out of memory.
        if isinstance(error.__cause__, MemoryError):
            return NO_MEMORY
        raise
    return 0


def _has_room() -> bool:
    """Return whether the process holds little enough memory to take another question."""
    resident = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE") <= MAX_KEPT


def _next_job(idle: int, seconds: int) -> bytes | None:
    """Return the next job, which may use `seconds` of CPU time. Return None if the service has
    ended, or sent no job for `idle` seconds."""
    source = sys.stdin.buffer
    # Nothing is buffered here: the service sends a job once it has read the last one's answer.
    if not select.select([source], [], [], idle)[0]:
        return None
    _limit_computing(seconds)
    size = source.read(SIZE)
    return source.read(int.from_bytes(size)) if len(size) == SIZE else None


def _limit_computing(seconds: int) -> None:
    """Limit the CPU time that this process may use from now on, to within half a second. The kernel
    kills the process at the limit (SIGXCPU)."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = round(time.process_time()) + seconds
    at_most = until if most == resource.RLIM_INFINITY else min(until, most)
    resource.setrlimit(resource.RLIMIT_CPU, (at_most, most))


def _answer(raw: bytes) -> Answer:
    try:
        job = read_job(raw)
        return Answer(200, QUESTIONS[job.question](job))
    except SluiceError as error:
        return Answer(error.status, b"", error.message, error.details)
    except TooManyClasses as error:
        return Answer(422, b"", str(error), "\n".join(error.patterns[:MAX_DETAIL_LINES]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
