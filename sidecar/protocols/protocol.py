"""The interface of a protocol to the proxy. Knows no particular protocol."""

from typing import ClassVar

from sidecar.http.request_target import Target
from sidecar.protocols.messages import (
    FetchedResponse,
    Fields,
    OutgoingRequest,
    RefusalResponse,
    RoutedRequest,
)
from sidecar.protocols.route_table import RouteMatch


class SourceProtocol:
    """The protocol of one configured data source, and what it has learnt about that source."""

    signs_requests: ClassVar[bool] = False
    """Whether the proxy calls `sign`, and drops the agent's own credentials."""
    uses_host: ClassVar[bool] = False
    """Whether `Host` names part of what is requested, so that the proxy calls `apply_host`."""

    def apply_host(self, _host: str, target: Target) -> Target:
        """`target` with the part that `Host` names (the bucket in S3's `<bucket>.<domain>`) written
        into its path. The result is matched, judged and forwarded. Raises `Malformed`."""
        return target

    def match(self, method: str, target: Target) -> RouteMatch | None:
        """The first route that covers the request, or None if no route does: it is then denied
        (R4)."""
        raise NotImplementedError

    def render_refusal(
        self, _request: RoutedRequest | None, _refusal: RefusalResponse
    ) -> FetchedResponse | None:
        """A denial or an error of the sidecar in the protocol's own format, so that its clients
        raise their own errors; None for the usual format (`CONTRACT.md`, Errors). The request is
        None if it could not be read far enough."""
        return None

    # Called last, right before the request is sent: a signature covers the fields and the body as
    # they leave.
    async def sign(self, outgoing: OutgoingRequest) -> Fields:
        """The fields to send, including the sidecar's own credentials (R9). Raises
        `UpstreamFailed` if there are none."""
        raise NotImplementedError
