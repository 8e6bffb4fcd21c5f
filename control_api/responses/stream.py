"""A response that is sent while it is made, because it may be larger than memory."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

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
