"""The chunks of a body: encoded, and taken apart with llhttp, to the byte. Knows nothing of
heads."""

import httptools

from sidecar.http.trailers import BadTrailers, TrailerHead, Trailers

# llhttp reads chunks only as the body of a message.
_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

LAST_CHUNK = b"0\r\n\r\n"


def encode_chunk(data: bytes) -> bytes:
    # A chunk of no bytes would end the body.
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class BadChunks(Exception):
    """the chunks can't be parsed"""


class ChunkReader:
    """The chunks of one body. A line of their framing, and all trailers together, may have `limit`
    bytes. Trailers are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._silent_bytes = 0
        self._last_bytes = b""
        self.ended = False
        """Whether the last chunk has arrived."""
        self.excess = False
        """Whether anything followed the last chunk."""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(_HEAD)

    def feed(self, data: bytes) -> bytes:
        """What `data` holds of the body. Raises `BadChunks`."""
        failure: Exception | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # Anything else that was raised while the parser called us is a bug of ours.
            if not isinstance(error.__context__, BadChunks):
                raise
            failure = error
        except httptools.HttpParserError as error:
            failure = error
        last = data[-5:] if len(data) >= 5 else (self._last_bytes + data)[-5:]
        self._last_bytes = last
        if self.ended:
            # llhttp refuses what follows, or skips it if it is an empty line. Without any, the body
            # ends with one empty line: after its last chunk, or after its trailers.
            self.excess = failure is not None or last[-4:] != b"\r\n\r\n" or last[:1] in b"\r\n"
        else:
            # The parser keeps the beginning of a line until its end has arrived.
            self._silent_bytes += len(data)
            if failure is not None or self._silent_bytes > len(data) + self._limit:
                raise BadChunks from failure
        body = b"".join(self._parts)
        self._parts.clear()
        return body

    # ------------------------------------------------------------------- what the parser calls

    def on_message_begin(self) -> None:
        if self.ended:
            raise BadChunks

    def on_body(self, data: bytes) -> None:
        self._silent_bytes = 0
        self._parts.append(data)

    def on_message_complete(self) -> None:
        self.ended = True


class TrailerReader(ChunkReader):
    """Reads the trailers too, of a body whose head says of them what is in `head`. Those that may
    not be forwarded are `BadChunks`."""

    def __init__(self, limit: int, head: TrailerHead) -> None:
        self._trailer_head = head
        self.trailers: Trailers | None = None
        super().__init__(limit)
        self.trailers = Trailers()

    def feed(self, data: bytes) -> bytes:
        body = super().feed(data)
        if self.ended:
            try:
                self._trailer_head.last_chunk(self.trailers)
            except BadTrailers as error:
                raise BadChunks(str(error)) from error
        return body

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.trailers is not None:  # else it is of the head that was made up for the parser
            self.trailers.add(name, value)
