"""A connection of HTTP/2 over a transport in memory, whose client sends frames made by hand."""

from collections.abc import Callable

from sidecar.http.server.request import Answer, HttpRequest
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import GET, Frame
from tests.sidecar.http.server.served import Client, at_once

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL, STREAM_CLOSED, FRAME_SIZE = 0, 1, 3, 5, 6
REFUSED, CANCEL, COMPRESSION, CALM = 7, 8, 9, 11


class Served:
    """A connection of HTTP/2 that has begun with the bytes `first`, and the requests that were
    served on it."""

    def __init__(
        self, serve: Callable[..., object] = at_once, first: bytes | None = None, **options: object
    ) -> None:
        self.served: list[HttpRequest] = []
        self._serve = serve
        self.wire = Client(self._note, **options)  # type: ignore[arg-type]
        self._seen = 0
        self.wire.send(frames.begin() if first is None else first)

    async def _note(self, request: HttpRequest) -> Answer:
        self.served.append(request)
        return await self._serve(request)  # type: ignore[misc,no-any-return]

    async def send(self, *segments: bytes) -> list[Frame]:
        """Sends segments, and returns the frames that came since the last call."""
        self.wire.send(*segments)
        got = await self.wire.settle()
        new, self._seen = got[self._seen :], len(got)
        return [each for each in frames.read(new) if each.kind != frames.SETTINGS]

    def forget(self) -> None:
        """Drops what was served and seen so far."""
        self.served.clear()
        self.wire.got, self._seen = b"", 0

    @property
    def faults(self) -> list[str]:
        return [each.fault for each in self.served if each.fault]


def goaway(found: list[Frame]) -> int | None:
    """The code of the last GOAWAY."""
    codes = [each.code for each in found if each.kind == frames.GOAWAY]
    return codes[-1] if codes else None


def resets(found: list[Frame]) -> dict[int, int]:
    return {each.stream: each.code for each in found if each.kind == frames.RST_STREAM}


def got(found: list[Frame], stream: int) -> int:
    """The bytes of a response's body."""
    return sum(
        len(each.payload) for each in found if (each.kind, each.stream) == (frames.DATA, stream)
    )


def ended(found: list[Frame]) -> list[int]:
    kinds = (frames.DATA, frames.HEADERS)
    return [each.stream for each in found if each.kind in kinds and each.flags & 1]


def head(name: str) -> tuple[tuple[bytes, bytes], ...]:
    return (*GET[:3], (b":path", name.encode()))
