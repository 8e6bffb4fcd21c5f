"""A question to the analysis process and its answer, as bytes. Knows no question in particular."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

NO_MEMORY = 3
"""The exit code of a process that has used up its memory."""


class Job(NamedTuple):
    """A question: its name, its options, and documents that were not decoded yet."""

    question: str
    options: Mapping[str, Any]
    parts: Sequence[bytes]


class Answer(NamedTuple):
    """The JSON of a response, or why there is none: a status, a message, and lines of details."""

    status: int
    body: bytes
    message: str = ""
    details: str | None = None


def write_job(job: Job) -> bytes:
    head = {"question": job.question, "options": job.options, "sizes": [*map(len, job.parts)]}
    return b"\n".join((orjson.dumps(head), b"".join(job.parts)))


def read_job(raw: bytes) -> Job:
    line, _, rest = raw.partition(b"\n")
    head = orjson.loads(line)
    parts, at = [], 0
    for size in head["sizes"]:
        parts.append(rest[at : at + size])
        at += size
    return Job(head["question"], head["options"], parts)


def write_answer(answer: Answer) -> bytes:
    head = {"status": answer.status, "message": answer.message, "details": answer.details}
    return b"\n".join((orjson.dumps(head), answer.body))


def read_answer(raw: bytes) -> Answer | None:
    """None if the process ended before it had answered."""
    line, separator, body = raw.partition(b"\n")
    if not separator:
        return None
    head = orjson.loads(line)
    return Answer(head["status"], body, head["message"], head["details"])
