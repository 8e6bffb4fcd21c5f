"""Sends requests to one data source, signed if its protocol signs requests. Knows no decision."""

from sidecar.http.headers import RequestHead, decode_fields, encode_fields
from sidecar.protocols.messages import FetchedResponse, OutgoingRequest
from sidecar.protocols.protocol import SourceProtocol
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages import request_reader
from sidecar.proxy.pipeline.response_inspector import read_response
from sidecar.proxy.upstream.client import UpstreamClient, UpstreamRequest


class UpstreamSender:
    """Sends to `upstream`."""

    def __init__(
        self, protocol: SourceProtocol, upstream: UpstreamClient, limits: ProxyLimits
    ) -> None:
        self.upstream = upstream
        self.protocol = protocol
        self._limits = limits

    async def fetch(self, head: RequestHead, target: str) -> FetchedResponse:
        """Sends a GET for `target` with the agent's credentials, for the sidecar itself to read."""
        lookup = request_reader.lookup_request(head, target)
        response = await self.upstream.send(await self.signed(lookup))
        try:
            return await read_response(response, self._limits)
        finally:
            await response.finish()

    async def signed(self, upstream_request: UpstreamRequest) -> UpstreamRequest:
        """The request as it is sent, with its signature if the protocol signs requests."""
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
