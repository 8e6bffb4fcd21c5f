"""What may become of a request: a response that is still to be written, one that must wait for the
disk, or one that has been written."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Response(Protocol):
    """A response that is still to be written."""

    @property
    def close(self) -> bool:
        """Whether the connection ends after it."""

    def encode(self, *, keep_alive: bool, omit_body: bool, http10: bool) -> bytes:
        """The whole response, without its body if it answers a HEAD (`omit_body`). It says whether
        the connection is kept alive; HTTP/1.0 closes connections unless told otherwise."""


Complete = Callable[[BaseException | None], Response]
"""Makes the response once a record is on disk, or of the error that kept it from there."""


class Deferred(NamedTuple):
    """A response that must not be written before `durable` is done: the record of its decision goes
    to disk first. Then `complete` makes it, of the error if the record did not get there. If
    `durable` is cancelled or `complete` raises, the service's `failed` makes the response."""

    durable: asyncio.Future[None]
    complete: Complete


class ResponseSent:
    """A response that has been written, or is being written. `status` is 0 if no response was
    begun."""

    __slots__ = ("keep_alive", "status")

    def __init__(self, *, keep_alive: bool, status: int = 0) -> None:
        self.keep_alive = keep_alive
        self.status = status

    def end_connection(self) -> None:
        """Makes this the last response on its connection."""
        self.keep_alive = False


Answer = Response | Deferred | ResponseSent
