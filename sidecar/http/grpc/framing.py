"""The frames in which gRPC sends messages: a flag for compression, four bytes of length, and the
message (gRPC over HTTP/2, Length-Prefixed-Message). Pure."""

from policies.ground.errors import Malformed
from sidecar.http.grpc.inflation import inflate

HEAD_BYTES = 5
"""The bytes of a frame before its message."""


def frame(message: bytes) -> bytes:
    """Return a message in its frame, uncompressed."""
    return b"\0%b%b" % (len(message).to_bytes(4, "big"), message)


def unframe(body: bytes, coding: bytes, limit: int) -> bytes:
    """Return the one message in a body. A compressed one is inflated by `coding`, the value of
    `grpc-encoding`, to at most `limit` bytes. Raises `Malformed`, also for fewer or more than one
    message."""
    message, rest = split(body, coding, limit)
    if rest:
        raise Malformed("the call has more than one message, or bytes after its message")
    return message


def split(body: bytes, coding: bytes, limit: int) -> tuple[bytes, bytes]:
    """Return the first message in a body, as `unframe` does, and the bytes that follow it. Raises
    `Malformed`."""
    if len(body) < HEAD_BYTES:
        raise Malformed("the call has no message, or its frame is torn")
    flag, end = body[0], HEAD_BYTES + int.from_bytes(body[1:HEAD_BYTES], "big")
    if end > len(body):
        raise Malformed("the message's frame is torn")
    if flag > 1:
        raise Malformed(f"the message's frame has the flag {flag}")
    message = body[HEAD_BYTES:end]
    if flag:
        message = inflate(message, coding, limit)
    return message, body[end:]
