"""Takes the message of a gRPC call out of its frame for the decision, and frames what is forwarded:
never the bytes that arrived, but the canonical encoding of what was judged. Does the same for calls
of gRPC-Web, whose form (`sidecar/http/grpc/web.py`) is kept. Knows no decision."""

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.grpc.framing import frame, unframe
from sidecar.http.grpc.protobuf import Message
from sidecar.http.grpc.web import (
    decode_body,
    encode_body,
    read_response,
    trailers_frame,
    web_form,
)
from sidecar.http.headers import RequestHead
from sidecar.http.messages.body import BodyReader
from sidecar.protocols.protocol import FetchedResponse, GrpcMessage

_MEDIA = ("application/grpc", "application/grpc+proto")
_CODING = b"grpc-encoding"
IDENTITY = b"identity"
_FIELD_BYTES = 160
"""The memory that a decoded field takes, at most: two bytes of a message may be a dict."""


def message_coding(head: RequestHead) -> bytes:
    """Return how the messages of a call are compressed. Raises `Malformed` if the head says so
    twice."""
    return head.one(_CODING) or IDENTITY


def read_call(
    message: Message, body: bytes, media: str | None, coding: bytes, limit: int
) -> GrpcMessage:
    """Decode the one message in the body of a call. Raises `Malformed`; an inflated message may
    have `limit` bytes."""
    form = web_form((media or "").encode())
    if form is not None:
        body = decode_body(body, form)
    elif media not in _MEDIA:
        raise Malformed(f"the call's content type is `{(media or '')[:64]}`, not `{_MEDIA[0]}`")
    data = unframe(body, coding, limit)
    values, canonical, fields = message.decode(data)
    forwarded = data if canonical else message.encode(values)
    return GrpcMessage(values, forwarded, form, fields * _FIELD_BYTES)


def framed_request(
    sent: UpstreamRequest, message: bytes, form: bytes | None = None
) -> UpstreamRequest:
    """Return the same request with `message` as its body."""
    framed = frame(message)
    return sent.with_body(framed if form is None else encode_body(framed, form))


def streamed_request(sent: UpstreamRequest, messages: BodyReader) -> UpstreamRequest:
    """Return the same request with `messages`, each in its frame, as its body."""
    return sent._replace(body=b"", length=None, chunked=True, stream=messages)


def unframed_response(
    whole: FetchedResponse, limit: int, form: bytes | None = None
) -> FetchedResponse | None:
    """Return a response with the message of its body in place of the body, and the trailers beside
    it; None if the call failed, so that it has no message. Raises `UpstreamFailed` if it has
    several."""
    codings = [value for name, value in whole.fields if name.lower() == _CODING]
    coding = codings[0] if codings else IDENTITY
    try:
        if form is not None:
            message, trailers = read_response(decode_body(whole.body, form), coding, limit)
            return None if message is None else whole._replace(body=message, trailers=trailers)
        if not whole.body:
            return None
        return whole._replace(body=unframe(whole.body, coding, limit))
    except Malformed as error:
        raise UpstreamFailed(f"the data source's response can't be read: {error.message}") from None


def framed_response(whole: FetchedResponse, message: bytes, form: bytes | None) -> FetchedResponse:
    """Return what `unframed_response` returned as it is written, with `message` in place of its
    own."""
    framed = frame(message)
    if form is None:
        return whole._replace(body=framed)
    body = encode_body(framed + trailers_frame(whole.trailers), form)
    return whole._replace(body=body, trailers=b"")
