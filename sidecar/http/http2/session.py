"""The interface to the HTTP/2 library (`ngh2`, which is libnghttp2): one `Session` is the state of
one connection, without its socket. Bytes go in, events come out, and the bytes to send are asked
for. No other module imports the library, so that it can be exchanged (ARCHITECTURE.md, Libraries).

The library validates messages as RFC 9113 section 8 demands: it resets a stream whose head or
length is malformed, and the event `StreamClosed` is all that is seen of it. It never grants credit
by itself: `credit` does, once bytes were taken.
"""

from collections.abc import Sequence
from typing import Final

from ngh2 import (
    Configuration,
    Connection,
    ConnectionClosed,
    DataReceived,
    Event,
    GoAwayReceived,
    InformationalResponseReceived,
    NGH2Error,
    PingAcknowledged,
    RequestReceived,
    ResponseReceived,
    Role,
    SettingsReceived,
    StreamClosed,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from ngh2 import Setting as _Setting

__all__ = (
    "ConnectionClosed", "DataReceived", "Event", "GoAwayReceived", "InformationalResponseReceived",
    "PingAcknowledged", "RequestReceived", "ResponseReceived", "Session", "SessionFailed",
    "SettingsReceived", "StreamClosed", "StreamReset", "TrailersReceived", "WindowUpdated",
)  # fmt: skip

Fields = Sequence[tuple[bytes, bytes]]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes that a client sends on an HTTP/2 connection (RFC 9113 section 3.4)."""

NO_ERROR, PROTOCOL_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 8, 11
"""Error codes (RFC 9113 section 7)."""

MAX_STREAMS = 100
"""The most requests at once on one connection."""
STREAM_WINDOW = 65_535
"""The bytes of one body that may arrive before its reader takes any: the protocol's default."""
CONNECTION_WINDOW = 8 * 1024 * 1024
"""The bytes of all bodies that may arrive before a reader takes any. It has room for the windows
of all streams: otherwise a stream whose reader is slow would stop the others."""
HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 128
CONTINUATIONS = 8
"""The most frames that may continue one head."""

_CONFIGURATION = Configuration(
    auto_window_update=False,
    max_inbound_header_list_size=HEAD_BYTES,
    max_inbound_header_count=HEAD_FIELDS,
    max_continuations=CONTINUATIONS,
)
_SETTINGS = {
    _Setting.HEADER_TABLE_SIZE: 4096,
    _Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
    _Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    _Setting.MAX_FRAME_SIZE: 16_384,
    _Setting.MAX_HEADER_LIST_SIZE: HEAD_BYTES,
}


class SessionFailed(Exception):
    """the peer broke the protocol in a way that ends the connection"""


class Session:
    """One connection's state, as its server."""

    __slots__ = ("_connection",)

    def __init__(self) -> None:
        self._connection = connection = Connection(Role.SERVER, _CONFIGURATION)
        connection.initiate_connection(_SETTINGS)
        connection.set_local_window_size(CONNECTION_WINDOW)

    def receive(self, data: bytes) -> list[Event]:
        """Read bytes from the peer. Raises `SessionFailed` if they end the connection; a GOAWAY
        that says why may then be among the bytes to send."""
        try:
            self._connection.receive_data(data)
        except NGH2Error as error:
            raise SessionFailed(str(error)) from error
        return self._connection.events()

    def sendable(self, most: int) -> bytes:
        """Return at most about `most` of the bytes to send, empty if there are none."""
        return self._connection.data_to_send(most)

    def events(self) -> list[Event]:
        """Return the events that sending has caused: a stream closes once all of it was sent."""
        return self._connection.events()

    def queued(self, stream: int) -> int:
        """Return the bytes of the body that were written and not sent yet."""
        return self._connection.queued_body_size(stream)

    def credit(self, stream: int, count: int) -> None:
        """Let the peer send `count` more bytes: as many of the body's were taken."""
        self._connection.acknowledge_received_data(count, stream)

    @property
    def wants_more(self) -> bool:
        """False once the connection has nothing to receive and nothing to send any more."""
        return self._connection.want_read or self._connection.want_write

    # ---------------------------------------------------------------------------------- messages

    def respond(self, stream: int, fields: Fields, *, end: bool) -> None:
        self._connection.send_response(stream, fields, end_stream=end)

    def interim(self, stream: int, fields: Fields) -> None:
        self._connection.send_informational_response(stream, fields)

    def data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        self._connection.send_data(stream, data, end_stream=end)

    def end(self, stream: int, trailers: Fields = ()) -> None:
        """End the body, with `trailers` if there are any."""
        if trailers:
            self._connection.send_trailers(stream, trailers)
        else:
            self._connection.end_stream(stream)

    def reset(self, stream: int, code: int) -> None:
        self._connection.reset_stream(stream, code)

    # -------------------------------------------------------------------------------- connection

    def announce_end(self) -> None:
        """Tell the peer that the connection will end: it should begin no other streams. The answer
        to the PING that follows shows that the peer has read this."""
        self._connection.send_shutdown_notice()
        self._connection.ping()

    def refuse_streams(self) -> None:
        """Process no stream that begins from now on; those that have begun go on."""
        self._connection.send_goaway(NO_ERROR)

    def terminate(self, code: int, reason: str) -> None:
        """End the connection, with a reason for people."""
        self._connection.send_goaway(code, debug_data=reason.encode())
