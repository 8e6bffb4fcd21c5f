"""The analysis process: reads a job from standard input, answers it on standard output, and ends.

python -m control_api.analyses CPU_SECONDS MEMORY      started by `process.py`
"""

import os
import resource
import sys
from contextlib import suppress

from control_api.analyses.job import NO_MEMORY, Answer, read_job, write_answer
from control_api.analyses.questions import QUESTIONS
from policies.analysis.names import TooManyClasses
from policies.ground.errors import SluiceError

MAX_PATTERNS = 100
"""Lines of details."""


def main(arguments: list[str]) -> int:
    """Answers one job."""
    seconds, memory = map(int, arguments)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # where a sandbox forbids it
        os.nice(10)  # evaluations come first
    try:
        sys.stdout.buffer.write(write_answer(_answer()))
    except MemoryError:
        return NO_MEMORY
    except SystemError as error:
        # What orjson raises where it runs out of memory.
        if isinstance(error.__cause__, MemoryError):
            return NO_MEMORY
        raise
    return 0


def _answer() -> Answer:
    job = read_job(sys.stdin.buffer.read())
    try:
        return Answer(200, QUESTIONS[job.question](job))
    except SluiceError as error:
        return Answer(error.status, b"", error.message, error.details)
    except TooManyClasses as error:
        return Answer(422, b"", str(error), "\n".join(error.patterns[:MAX_PATTERNS]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
