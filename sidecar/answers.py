"""The head of every answer on the sidecar's own port (contract, section 1). Knows no route.

The headers are always the same few, so they are joined as bytes: no multi-dictionary is built.
"""

from email.utils import formatdate
from http import HTTPStatus

from policies.ground.clock import Clock
from sidecar.server import Answer

JSON = b"application/json"


class Answers:
    """Makes answers. The line with the date is made once a second."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._second = -1
        self._dated: dict[tuple[int, bytes], bytes] = {}

    def make(
        self,
        status: int,
        body: bytes,
        request_id: str,
        *,
        media: bytes = JSON,
        more: bytes = b"",
        close: bool = False,
    ) -> Answer:
        """`request_id` is printable ASCII; `more` is further header lines, each with its end."""
        second = self._now() // 1_000_000
        if second != self._second:
            self._second = second
            self._dated.clear()
        kind = (status, media)
        dated = self._dated.get(kind) or self._date(kind)
        head = b"%b%bX-Request-ID: %b\r\nContent-Length: %d\r\n" % (
            dated,
            more,
            request_id.encode("ascii"),
            len(body),
        )
        return Answer(head, body, close)

    def _date(self, kind: tuple[int, bytes]) -> bytes:
        status, media = kind
        dated = self._dated[kind] = (
            b"HTTP/1.1 %d %b\r\nServer: sluice\r\nDate: %b\r\nContent-Type: %b\r\n"
            b"Cache-Control: no-store\r\n"
        ) % (
            status,
            HTTPStatus(status).phrase.encode(),
            formatdate(self._second, usegmt=True).encode(),
            media,
        )
        return dated
