"""What the battery has a client do. Each family says, in its own idiom, how.

Knows neither a library nor the sidecar.
"""

import asyncio
import inspect
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")

# What frames the answer between two hops.
_HOP = ("connection", "keep-alive", "transfer-encoding")
_LENGTH = "content-length"
_EVENT = "x-sluice-event-id"


class GaveUp(Exception):
    """the client stopped waiting, by its own timeout"""


@dataclass(frozen=True)
class Heard:
    """An answer as the client tells of it: names in lower case, the body unpacked."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def event_id(self) -> str | None:
        return dict(self.fields).get(_EVENT)

    @property
    def told(self) -> "Heard":
        """What the data source said: without what is of one hop and what the sidecar adds, and the
        length, which a proxy writes anew, at the end."""
        kept = [each for each in self.fields if each[0] not in (*_HOP, _EVENT)]
        kept.sort(key=lambda each: each[0] == _LENGTH)
        return Heard(self.status, tuple(kept), self.body)


def heard(status: int, fields: Iterable[tuple[str, str]], body: bytes) -> Heard:
    """From pairs of name and value as a client gives them."""
    return Heard(status, tuple((name.lower(), value) for name, value in fields), body)


NONE: Mapping[str, str] = {}


class Client(Protocol):
    """Each method may as well be a coroutine's."""

    def get(
        self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False
    ) -> Heard | Awaitable[Heard]:
        """Redirects are followed only with `follow`."""

    def head(self, url: str) -> Heard | Awaitable[Heard]: ...

    def post_json(self, url: str, value: Any) -> Heard | Awaitable[Heard]: ...

    def put(self, url: str, body: bytes) -> Heard | Awaitable[Heard]:
        """At once, with a length."""

    def upload(self, url: str, parts: Iterator[bytes]) -> Heard | Awaitable[Heard]:
        """Part by part as they come, without a length."""

    def download(self, url: str, part: Callable[[bytes], None]) -> Awaitable[None] | None:
        """Read part by part."""

    def session(self, urls: Sequence[str]) -> list[Heard] | Awaitable[list[Heard]]:
        """One after the other, in what this client has for a session."""

    def events(self, url: str, event: Callable[[str], None]) -> Awaitable[None] | None:
        """Called with the data of each event of a stream, as soon as it is there."""

    def give_up(self, url: str, seconds: float) -> Awaitable[None] | None:
        """Raises `GaveUp`."""

    def leave(self, url: str) -> Awaitable[None] | None:
        """Reads the beginning of an answer, and closes."""


async def act(call: Callable[..., T | Awaitable[T]], *given: Any, **named: Any) -> T:
    """What `call` returns. A call that blocks does so on a thread: the sidecar and the data source
    have the event loop."""
    if inspect.iscoroutinefunction(call):
        return cast(T, await call(*given, **named))
    return cast(T, await asyncio.to_thread(call, *given, **named))


async def one_by_one(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The parts as a client on an event loop takes them; each may be waited for."""
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part
