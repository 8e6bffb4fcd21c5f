"""Tells a client that speaks HTTP/2 by prior knowledge (RFC 9113 section 3.3) why it is refused, in
HTTP/2: the client would show its user nothing of an HTTP/1.1 response.

    the preface           is answered with SETTINGS, by which a client knows that it is connected
    its first request     is refused, with a GOAWAY whose debug data says why

After a GOAWAY at once, gRPC's clients would connect again and again until the call's deadline, and
show nothing of it. Pure. Knows no connection.
"""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every HTTP/2 connection."""
REASON = (
    "this port speaks HTTP/1.1 only, until Sluice supports HTTP/2; set the client to HTTP/1.1, or "
    "configure the data source as kind tcp to pass its connections on unread"
)
"""The debug data of the GOAWAY, which clients show to their users."""

_HEADERS, _SETTINGS, _GOAWAY = 1, 4, 7
_HTTP_1_1_REQUIRED = 0xD
_FRAME_HEAD = 9


def _frame(kind: int, payload: bytes) -> bytes:
    """Return an HTTP/2 frame on stream 0, without flags (RFC 9113 section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + bytes(4) + payload


SETTINGS = _frame(_SETTINGS, b"")
"""The frame that answers the preface: a server has to begin with SETTINGS, which may be empty."""
GOAWAY = _frame(_GOAWAY, bytes(4) + _HTTP_1_1_REQUIRED.to_bytes(4, "big") + REASON.encode())
"""The frame that answers the first request. It names stream 0 as the last one processed: no request
was processed, so a client may send all its requests again elsewhere."""


class Http2Opening:
    """Follows the first bytes of one connection, to find out whether the client speaks HTTP/2 and
    whether it has sent a request."""

    __slots__ = ("_head", "_payload", "_preface", "found", "requested")

    def __init__(self) -> None:
        self._preface = PREFACE
        """The part of the preface that has not arrived yet."""
        self._head = b""
        """The bytes that have arrived of an incomplete frame header."""
        self._payload = 0
        """The number of bytes that are missing of the current frame's payload."""
        self.found = False
        """True if the whole preface has arrived."""
        self.requested = False
        """True if a HEADERS frame has begun, which starts a request."""

    def feed(self, piece: bytes) -> bool:
        """Take the next bytes. Returns False if they show that the connection isn't HTTP/2."""
        missing = self._preface
        part = piece[: len(missing)]
        if not missing.startswith(part):
            return False
        self._preface = missing[len(part) :]
        self.found = not self._preface
        self._read_frames(piece[len(part) :])
        return True

    def _read_frames(self, data: bytes) -> None:
        while data and not self.requested:
            skipped = min(self._payload, len(data))
            self._payload -= skipped
            missing = _FRAME_HEAD - len(self._head)
            self._head += data[skipped : skipped + missing]
            data = data[skipped + missing :]
            if len(self._head) == _FRAME_HEAD:
                self.requested = self._head[3] == _HEADERS
                self._payload, self._head = int.from_bytes(self._head[:3], "big"), b""
