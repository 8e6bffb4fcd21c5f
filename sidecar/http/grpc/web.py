"""gRPC-Web: gRPC's frames in the body of an ordinary request, for clients that can't read trailers
(gRPC's PROTOCOL-WEB). The last frame of a response holds the trailers, and has the flag 0x80. The
text form of a body is base64. Pure."""

import re
from base64 import b64decode, b64encode
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.grpc.framing import split

_BINARY, _TEXT = b"application/grpc-web", b"application/grpc-web-text"
_TRAILERS = b"\x80"
_HEAD = 5
# A body may be several texts behind one another, each with an end of its own.
_CHUNK = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TRAILER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)\r\n")


class WebResponse(NamedTuple):
    message: bytes | None
    """The one message; None if the call failed without one."""
    trailers: bytes
    """The trailer fields, each with its line end and with its name in lower case."""


def web_form(content_type: bytes) -> bytes | None:
    """Return the content type without its subtype: that of the binary or of the text form. None if
    it is neither."""
    name, plus, subtype = content_type.partition(b"+")
    known = name in (_BINARY, _TEXT) and (not plus or subtype == b"proto")
    return name if known else None


def decode_body(body: bytes, form: bytes) -> bytes:
    """Return the frames in a body of this form. Raises `Malformed` for a text that isn't base64, or
    not the one that its bytes have."""
    if form != _TEXT:
        return body
    at, parts = 0, []
    while at < len(body):
        found = _CHUNK.match(body, at)
        if found is None or found.end() == at:
            raise Malformed("the call's text is not base64")
        chunk = found[0]
        part = b64decode(chunk)
        # The last character may have bits that count for nothing.
        if b64encode(part) != chunk:
            raise Malformed("the call's text is not base64 in its one form")
        parts.append(part)
        at = found.end()
    return b"".join(parts)


def encode_body(frames: bytes, form: bytes) -> bytes:
    """Return a body of this form. The reverse of `decode_body`."""
    return b64encode(frames) if form == _TEXT else frames


def trailers_frame(trailers: bytes) -> bytes:
    """Return the frame with which a response ends. The fields each have their line end."""
    return b"%b%b%b" % (_TRAILERS, len(trailers).to_bytes(4, "big"), trailers)


def read_response(frames: bytes, coding: bytes, limit: int) -> WebResponse:
    """Return the message and the trailers of a response to a call with one message. A compressed
    message is inflated by `coding` to at most `limit` bytes. Raises `Malformed` unless there is at
    most one message, and behind it exactly one frame of trailers."""
    message = None
    if not frames.startswith(_TRAILERS):
        message, frames = split(frames, coding, limit)
    length = int.from_bytes(frames[1:_HEAD], "big")
    if not frames.startswith(_TRAILERS) or len(frames) != _HEAD + length:
        raise Malformed("the response doesn't end with one frame of trailers")
    trailers, at = [], _HEAD
    while at < len(frames):
        line = _TRAILER.match(frames, at)
        if line is None:
            raise Malformed("the response's trailers can't be read")
        trailers.append(b"%b: %b\r\n" % (line[1].lower(), line[2].strip(b" \t")))
        at = line.end()
    return WebResponse(message, b"".join(trailers))
