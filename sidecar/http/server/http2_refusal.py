"""Tells a client that speaks HTTP/2 by prior knowledge (RFC 9113 section 3.3) why it is refused, in
its own protocol: it would show its user nothing of an HTTP/1.1 response.

    the preface           is answered with SETTINGS, by which a client knows that it is connected
    its first request     is refused, with a GOAWAY whose debug data says why

A GOAWAY at once would make gRPC's clients connect again and again until the call's deadline, and
show nothing of it. Pure. Knows no connection.
"""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every HTTP/2 connection."""
REASON = (
    "this port speaks HTTP/1.1 only, until Sluice supports HTTP/2; set the client to HTTP/1.1, or "
    "configure the data source as kind tcp to pass its connections on unread"
)
"""The debug data of the GOAWAY."""

_HEADERS, _SETTINGS, _GOAWAY = 1, 4, 7
_HTTP_1_1_REQUIRED = 0xD
_FRAME_HEAD = 9


def _frame(kind: int, payload: bytes) -> bytes:
    """Return a frame of the connection, without flags (RFC 9113 section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + bytes(4) + payload


SETTINGS = _frame(_SETTINGS, b"")
"""The answer to the preface; a server has to begin with it, and it may be empty."""
GOAWAY = _frame(_GOAWAY, bytes(4) + _HTTP_1_1_REQUIRED.to_bytes(4, "big") + REASON.encode())
"""The answer to the first request. It names stream 0: none was processed, so a client may send all
its requests again elsewhere."""


class Http2Opening:
    """Follows the first bytes of one connection: is it HTTP/2, and has it sent a request?"""

    __slots__ = ("_head", "_payload", "_preface", "found", "requested")

    def __init__(self) -> None:
        self._preface = PREFACE
        """The missing part of the preface."""
        self._head = b""
        """The beginning of the frame's head under way."""
        self._payload = 0
        """The number of bytes missing of the frame's payload."""
        self.found = False
        """True if the whole preface has arrived."""
        self.requested = False
        """True if a HEADERS frame has begun."""

    def feed(self, piece: bytes) -> bool:
        """Reads the next bytes. Returns whether they may belong to an HTTP/2 connection."""
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
