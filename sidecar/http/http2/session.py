"""The interface to the HTTP/2 library (`ngh2`, which is libnghttp2): one `Session` is the state of
one connection, without its socket. Bytes go in, events come out, and the bytes to send are asked
for. No other module imports the library, so that it can be exchanged (ARCHITECTURE.md, Libraries).

The library validates messages as RFC 9113 section 8 demands: it resets a stream whose head or
length is malformed, and the event `StreamClosed` is all that is seen of it. It never grants credit
by itself: `credit` does, once bytes were taken.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from ngh2 import (
    Configuration,
    Connection,
    ConnectionClosed,
    ConnectionStateError,
    DataReceived,
    DenialOfServiceError,
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
    pack_settings_payload,
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

NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 7, 8, 11
"""Error codes (RFC 9113 section 7)."""

MAX_FRAME = 16_384
"""The most bytes of a frame's payload: the protocol's default."""
MAX_STREAMS = 100
"""The most requests at once on one connection, unless its port says otherwise. The owner of a
session counts them, and refuses more."""
STREAM_WINDOW = 65_535
"""The bytes of one body that may arrive before its reader takes any: the protocol's default."""
CONNECTION_WINDOW = 8 * 1024 * 1024
"""The bytes of all bodies that may arrive before a reader takes any. It has room for the windows
of `MAX_STREAMS`: otherwise a stream whose reader is slow would stop the others."""
RESPONSE_WINDOW = 256 * 1024
"""The same for the body of a response: a data source may be far away, and sends no more than this
in one round trip."""
RESPONSES_WINDOW = MAX_STREAMS * RESPONSE_WINDOW
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
    _Setting.MAX_FRAME_SIZE: MAX_FRAME,
    _Setting.MAX_HEADER_LIST_SIZE: HEAD_BYTES,
}
_SERVER_SETTINGS = _SETTINGS | {
    _Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
}
_CLIENT_SETTINGS = _SETTINGS | {
    _Setting.ENABLE_PUSH: 0,
    _Setting.INITIAL_WINDOW_SIZE: RESPONSE_WINDOW,
}


# The library ends the connection of a client that begins a stream too many, unless it does not know
# of the limit: the client may have begun it when another seemed to have ended.
@lru_cache
def _first_frame(streams: int) -> bytes:
    stated = pack_settings_payload({**_SERVER_SETTINGS, _Setting.MAX_CONCURRENT_STREAMS: streams})
    return len(stated).to_bytes(3, "big") + b"\x04\0\0\0\0\0" + stated


class SessionFailed(Exception):
    """the peer broke the protocol in a way that ends the connection"""


class Session:
    """One connection's state, as its server or as its `client`. The client of a server may have
    `streams` requests at once."""

    __slots__ = ("_connection", "_own", "_unusable")

    def __init__(self, *, client: bool = False, streams: int = MAX_STREAMS) -> None:
        role = Role.CLIENT if client else Role.SERVER
        self._connection = connection = Connection(role, _CONFIGURATION)
        connection.initiate_connection(_CLIENT_SETTINGS if client else _SERVER_SETTINGS)
        if not client:
            connection.data_to_send()  # in its place comes the frame below
        connection.set_local_window_size(RESPONSES_WINDOW if client else CONNECTION_WINDOW)
        self._unusable = False
        """True once the library refuses to read on and to write."""
        self._own = b"" if client else _first_frame(streams)
        """A frame to send before those of the library."""

    def receive(self, data: bytes) -> list[Event]:
        """Read whole frames from the peer: of a frame that arrives in parts, the library would lose
        the first part's credit if its stream is reset in between. Raises `SessionFailed` if they
        end the connection; a GOAWAY that says why is then among the bytes to send."""
        try:
            self._connection.receive_data(data)
        except ConnectionStateError as error:  # a GOAWAY of the library's is among the bytes
            raise SessionFailed(str(error)) from error
        except NGH2Error as error:
            calm = isinstance(error, DenialOfServiceError)
            self._unusable = True
            self.terminate(ENHANCE_YOUR_CALM if calm else PROTOCOL_ERROR, str(error))
            raise SessionFailed(str(error)) from error
        return self._connection.events()

    def sendable(self, most: int) -> bytes:
        """Return at most about `most` of the bytes to send, empty if nothing can be sent now."""
        own, self._own = self._own, b""
        return own if self._unusable else own + self._connection.data_to_send(most)

    def events(self) -> list[Event]:
        """Return the events that sending has caused: a stream closes once all of it was sent."""
        return self._connection.events()

    def queued(self, stream: int) -> int:
        """Return the bytes of the body that were written and not sent yet."""
        return self._connection.queued_body_size(stream)

    def waits(self, stream: int) -> bool:
        """Return whether something of an open stream may wait for the peer's credit; its end may,
        too."""
        connection = self._connection
        try:
            window = min(
                connection.remote_window_size, connection.stream_remote_window_size(stream)
            )
        except NGH2Error:
            return True  # nothing will be sent any more
        return window <= 0 or connection.queued_body_size(stream) > 0

    @property
    def credit_spent(self) -> bool:
        """True if no body can be sent on any stream before the peer gives the connection credit.
        False if the connection has ended."""
        try:
            return self._connection.remote_window_size <= 0
        except ConnectionStateError:
            return False

    @property
    def all_queued(self) -> int:
        """The bytes of all bodies that were written and not sent yet."""
        return self._connection.queued_body_size()

    def credit(self, stream: int, count: int) -> None:
        """Let the peer send `count` more bytes: as many of the body's were taken."""
        _unless_over(self._connection.acknowledge_received_data, count, stream)

    @property
    def wants_more(self) -> bool:
        """False once the connection has nothing to receive and nothing to send any more."""
        if self._unusable:
            return bool(self._own)
        return self._connection.want_read or self._connection.want_write

    @property
    def most_streams(self) -> int:
        """The most requests at once that the peer, a server, takes; 0 if it takes no more."""
        if not self._connection.can_send_request:
            return 0
        return min(MAX_STREAMS, self._connection.remote_settings[_Setting.MAX_CONCURRENT_STREAMS])

    # ---------------------------------------------------------------------------------- messages
    # Each raises `ConnectionResetError` if the stream is closed: the event may not be read yet.

    def request(self, fields: Fields, *, end: bool) -> int:
        """Begin a request, and return the number of its stream. Raises `ConnectionResetError` too
        if the server takes no more."""
        try:
            return self._connection.send_request(fields, end_stream=end)
        except NGH2Error as error:
            raise ConnectionResetError(str(error)) from error

    def respond(self, stream: int, fields: Fields, *, end: bool) -> None:
        _unless_closed(self._connection.send_response, stream, fields, end_stream=end)

    def interim(self, stream: int, fields: Fields) -> None:
        _unless_closed(self._connection.send_informational_response, stream, fields)

    def data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        _unless_closed(self._connection.send_data, stream, data, end_stream=end)

    def end(self, stream: int, trailers: Fields = ()) -> None:
        """End the body, with `trailers` if there are any."""
        if trailers:
            _unless_closed(self._connection.send_trailers, stream, trailers)
        else:
            _unless_closed(self._connection.end_stream, stream)

    def reset(self, stream: int, code: int) -> None:
        """Reset a stream, unless it is closed."""
        _unless_over(self._connection.reset_stream, stream, code)

    # -------------------------------------------------------------------------------- connection
    # None of these has an effect on a connection that the library has ended already.

    def announce_end(self) -> None:
        """Tell the peer that the connection will end: it should begin no other streams. The answer
        to the PING that follows shows that the peer has read this."""
        _unless_over(self._connection.send_shutdown_notice)
        _unless_over(self._connection.ping)

    def refuse_streams(self) -> None:
        """Process no stream that begins from now on; those that have begun go on."""
        _unless_over(self._connection.send_goaway, NO_ERROR)

    def terminate(self, code: int, reason: str) -> None:
        """End the connection, with a reason for people."""
        if self._unusable:
            # Any stream may have been processed, as far as the peer can know.
            payload = b"\x7f\xff\xff\xff%b%b" % (code.to_bytes(4, "big"), reason.encode())
            self._own += b"%b\x07\0\0\0\0\0%b" % (len(payload).to_bytes(3, "big"), payload)
        else:
            _unless_over(self._connection.send_goaway, code, debug_data=reason.encode())


def _unless_over(act: Callable[..., Any], *values: Any, **options: Any) -> None:
    try:
        act(*values, **options)
    except ConnectionStateError:
        return  # it has failed, or its GOAWAY says that it ends


def _unless_closed(act: Callable[..., Any], *values: Any, **options: Any) -> None:
    try:
        act(*values, **options)
    except NGH2Error as error:
        raise ConnectionResetError(str(error)) from error
