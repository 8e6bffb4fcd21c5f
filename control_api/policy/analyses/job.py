"""A question to the analysis process and its answer, as bytes. Knows no question in particular."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

NO_MEMORY = 3
"""The exit code of a process that has used up its memory."""
SIZE = 8
"""How many bytes give the size of a job or an answer, big-endian, before it."""


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
    return _sized(b"\n".join((orjson.dumps(head), b"".join(job.parts))))


def read_job(raw: bytes) -> Job:
    """`raw` is without its size."""
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
    """`raw` is without its size."""
    line, _, body = raw.partition(b"\n")
    head = orjson.loads(line)
    return Answer(head["status"], body, head["message"], head["details"])


def _sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(SIZE) + raw
