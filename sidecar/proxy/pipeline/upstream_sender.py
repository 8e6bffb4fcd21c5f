"""Sends the requests to one data source, each to the address for its kind, and reads the responses
that only the sidecar sees. Knows the protocol's signature. Decides nothing."""

from policies.ground.errors import UpstreamFailed
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.grpc.status import is_grpc_type
from sidecar.http.headers import RequestHead, decode_fields, encode_fields, refuse_encoded
from sidecar.protocols.protocol import (
    FetchedResponse,
    OutgoingRequest,
    ProtocolRoute,
    ResponseTooLarge,
    SourceProtocol,
)
from sidecar.protocols.strict_body import MAX_BRACKETS, has_too_many_brackets
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages import request_reader
from sidecar.proxy.messages.grpc_calls import framed_request, unframed_response
from sidecar.proxy.upstream.client import UpstreamClient
from sidecar.proxy.upstream.exchange import UpstreamResponse


class UpstreamSender:
    """Sends the requests to one data source: calls of gRPC by `grpc`, if the source has an address
    for them, and all others by `upstream`."""

    def __init__(
        self,
        protocol: SourceProtocol,
        upstream: UpstreamClient,
        limits: ProxyLimits,
        grpc: UpstreamClient | None = None,
    ) -> None:
        self.upstream = upstream
        self.grpc = grpc
        self.protocol = protocol
        self._limits = limits

    def client(self, route: ProtocolRoute) -> UpstreamClient:
        """Return the client that sends the requests of `route`."""
        # Without an address for calls, the classifier refuses them, unless the source only reports.
        return self.grpc if self.grpc is not None and route.rpc else self.upstream

    async def fetch(
        self, head: RequestHead, target: str, body: bytes | None = None
    ) -> FetchedResponse:
        """Send a look-up of `target` with the agent's credentials: a GET or, with a body, a POST of
        that JSON; a call of gRPC with that message if the agent's request is one. Return the whole
        response, which only the sidecar reads, or the message of a call."""
        lookup, client = request_reader.lookup_request(head, target, body), self.upstream
        called = body is not None and any(map(is_grpc_type, head.read.get(b"content-type", ())))
        if called:
            assert self.grpc is not None  # the classifier has looked
            assert body is not None
            lookup, client = framed_request(lookup, body), self.grpc
        response = await client.send(await self.signed(lookup))
        try:
            if called:
                limit = self._limits.inspected_response_bytes
                message = unframed_response(await response.read(limit), limit)
                if message is None:
                    raise UpstreamFailed("the data source's response to a look-up has no message")
                return message
            return await read_response(response, self._limits)
        finally:
            await response.finish()

    async def signed(self, upstream_request: UpstreamRequest) -> UpstreamRequest:
        """Return the request with its signature if the protocol signs requests; otherwise
        unchanged."""
        if not self.protocol.signs_requests:
            return upstream_request
        # The body is part of the signature, unless it is still arriving.
        streaming = upstream_request.stream is not None
        outgoing = OutgoingRequest(
            upstream_request.method,
            self.upstream.host,
            self.upstream.path(upstream_request),
            decode_fields(upstream_request.lines),
            None if streaming else upstream_request.body,
        )
        return upstream_request._replace(lines=encode_fields(await self.protocol.sign(outgoing)))


async def read_response(response: UpstreamResponse, limits: ProxyLimits) -> FetchedResponse:
    """Return the whole of a response that the sidecar has to read. Raises `UpstreamFailed`, and
    `ResponseTooLarge` for a response that would take too long to parse."""
    whole = await response.read(limits.inspected_response_bytes)
    refuse_encoded(whole.fields)
    if has_too_many_brackets(whole.body):
        raise ResponseTooLarge(f"the data source's response has more than {MAX_BRACKETS} brackets")
    return whole
