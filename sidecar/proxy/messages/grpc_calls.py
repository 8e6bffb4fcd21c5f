"""Takes the message of a gRPC call out of its frame for the decision, and frames what is forwarded:
never the bytes that arrived, but the canonical encoding of what was judged. Knows no decision."""

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.grpc.framing import frame, unframe
from sidecar.http.grpc.protobuf import Message
from sidecar.http.headers import RequestHead
from sidecar.protocols.protocol import FetchedResponse, GrpcMessage

_MEDIA = ("application/grpc", "application/grpc+proto")
_CODING = b"grpc-encoding"
IDENTITY = b"identity"


def message_coding(head: RequestHead) -> bytes:
    """Return how the messages of a call are compressed. Raises `Malformed` if the head says so
    twice."""
    return head.one(_CODING) or IDENTITY


def read_call(
    message: Message, body: bytes, media: str | None, coding: bytes, limit: int
) -> GrpcMessage:
    """Decode the one message in the body of a call. Raises `Malformed`; an inflated message may
    have `limit` bytes."""
    if media not in _MEDIA:
        raise Malformed(f"the call's content type is `{(media or '')[:64]}`, not `{_MEDIA[0]}`")
    data = unframe(body, coding, limit)
    values, canonical = message.decode(data)
    return GrpcMessage(values, data if canonical else message.encode(values))


def framed_request(sent: UpstreamRequest, message: bytes) -> UpstreamRequest:
    """Return the same request with `message` as its body."""
    return sent.with_body(frame(message))


def unframed_response(whole: FetchedResponse, limit: int) -> FetchedResponse:
    """Return a response with the message of its body in place of the body. Raises `UpstreamFailed`
    unless it has exactly one."""
    codings = [value for name, value in whole.fields if name.lower() == _CODING]
    try:
        message = unframe(whole.body, codings[0] if codings else IDENTITY, limit)
    except Malformed as error:
        raise UpstreamFailed(f"the data source's response can't be read: {error.message}") from None
    return whole._replace(body=message)
