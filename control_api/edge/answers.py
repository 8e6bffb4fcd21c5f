"""Defines the answers that operations of every feature give, and writes the times in them."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from policies.ground.canonical import rfc3339


@dataclass(frozen=True, slots=True)
class Document:
    """A response that is not one of our JSON types: a page, metrics. `security_policy` is its
    Content-Security-Policy; by default a browser runs and loads nothing."""

    content_type: str
    body: bytes
    security_policy: str = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Redirect:
    """Redirects to `location`, which is relative: a proxy may serve us below another path."""

    location: str


@dataclass(frozen=True, slots=True)
class Empty:
    """An empty object."""

    example: ClassVar[dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Done:
    """The operation succeeded."""

    status: Literal["ok"] = "ok"

    example: ClassVar[dict[str, Any]] = {"status": "ok"}


EVENTS = "text/event-stream"
"""Of a stream whose pieces are to be seen at once (Server-Sent Events)."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The body as an iterator of its pieces, each at most a few megabytes. If the iterator raises,
    the connection is closed without the response's end, so that a client can't take it for the
    whole. `filename` is what a browser saves it as, None if it is not to be saved."""

    content_type: str
    pieces: AsyncGenerator[bytes, None]
    filename: str | None = None


def time_or_none(micros: int | None) -> str | None:
    return None if micros is None else rfc3339(micros)
