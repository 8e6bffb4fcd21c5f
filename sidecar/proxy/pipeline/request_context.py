"""Holds what the pipeline knows of a request so far, and the request that it allows in the end.
Decides nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.grpc.status import is_grpc_type
from sidecar.http.headers import RequestHead
from sidecar.http.messages.body import BodyStream
from sidecar.http.request_body import Lease
from sidecar.http.server.request import HttpRequest
from sidecar.platform.eager import Watch
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    ForwardPlan,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceRef,
)
from sidecar.proxy.local_response import Fields, event_fields
from sidecar.proxy.messages import request_reader
from sidecar.proxy.proxy_metrics import UNDECIDED
from sidecar.proxy.worker_thread import Refresh, no_refresh
from sidecar.recorder import RecordedDecision
from sidecar.tracing import Trace


class AllowedRequest(NamedTuple):
    """A request that may be forwarded, with one of `decisions` for each of `sources`. Both are
    empty if there was nothing to decide; of a stream of messages, both grow while it lasts. A
    request that `forward_unchanged` returns has one decision, and no sources. `prepared` is the
    plan of what to change; `started` is when its head was read, by the monotonic clock."""

    route: ProtocolRoute
    routed: RoutedRequest
    upstream_request: UpstreamRequest
    prepared: ForwardPlan
    sources: Sequence[SourceRef]
    decisions: list[RecordedDecision]
    started: float
    refresh: Refresh = no_refresh
    """The function to call on the event loop before `prepared` reads a response in the worker
    thread."""


@dataclass(slots=True, eq=False)
class RequestContext:
    """Everything known of one request so far; the steps of the pipeline fill it in. `started` is
    when its head was read, by the monotonic clock; `trace` is None without tracing."""

    started: float
    trace: Trace | None
    watch_client: Watch
    """Takes a function, which is called if the client leaves."""
    arriving: BodyStream | None = None
    """The stream of the body; None at a check door, where a gateway asks with the whole request."""
    decision: str = UNDECIDED
    """The decision label for the metrics: ALLOW, DENY or `UNDECIDED`."""
    head: RequestHead | None = None
    websocket: bool = False
    from_head: RoutedRequest | None = None
    """The request as its head alone describes it; None until the head is read."""
    route: ProtocolRoute | None = None
    """The row of the route table that the head led to; None before the head is read, and if no
    row covers it."""
    routed: RoutedRequest | None = None
    """The request, once it is covered by a row of the route table that isn't always denied; None
    before."""
    body: bytes | None = None
    """The whole body, if the decision needed it; otherwise None."""
    media: str | None = None
    """The media type of `body`."""
    lease: Lease | None = None
    """The lease that accounts for the bytes of `body` in the sidecar's budget for bodies."""

    @property
    def readable(self) -> RoutedRequest | None:
        """The request as far as it could be read: if no row covers it, only its head was read. None
        if not even the head could be read."""
        return self.routed or self.from_head

    @property
    def body_arrives(self) -> bool:
        """True if a part of the body has not arrived, so that no other request can follow on the
        connection."""
        return self.arriving is not None and not self.arriving.complete

    def forward_unchanged(
        self, request: HttpRequest, recorded: RecordedDecision, *, trailers: bool
    ) -> AllowedRequest:
        """Return a refused request as one to forward exactly as it came, because its source only
        reports (`mode: report`). The record of `recorded` is durable. `trailers` is the source's
        setting. Raises `Malformed` if the request wasn't read far enough to forward it."""
        head, routed = self.head, self.from_head
        if head is None or routed is None:
            raise Malformed("the request can't be read")
        # What was read of a body that broke a limit is gone. The rest alone would be another
        # request.
        if self.body is None and request.body_partly_read:
            raise Malformed("the beginning of the body was read, and is not kept")
        if trailers:
            # A request that was refused by its head alone has not been checked for them.
            request_reader.check_trailers(request, head)
        upstream_request = request_reader.forwarded_request(
            request, head, routed.target, self.body, upgrade=self.websocket, trailers=trailers
        )
        return AllowedRequest(
            _without_inspection(self.route, head),
            routed,
            upstream_request,
            FORWARD_UNCHANGED,
            (),
            [recorded],
            self.started,
        )


def decision_label(decisions: Iterable[RecordedDecision]) -> str:
    """Return the metrics label for decisions that all let the request pass: DENY if one is a denial
    in report mode, `UNDECIDED` if there are none, otherwise ALLOW."""
    label = UNDECIDED
    for recorded in decisions:
        if recorded.report_only:
            return "DENY"
        label = "ALLOW"
    return label


def decision_fields(decisions: list[RecordedDecision]) -> Fields:
    """Return the header fields that tell the agent about the decision. Of several decisions, a
    denial in report mode is shown first, since the agent has to learn of it."""
    if not decisions:
        return ()
    shown = decisions[-1]
    for recorded in decisions:
        if recorded.report_only:
            shown = recorded
            break
    return event_fields(shown.event_id, report_only=shown.report_only)


def _without_inspection(route: ProtocolRoute | None, head: RequestHead) -> ProtocolRoute:
    """Return a route that reads neither the request nor the response. `before_forward` and
    `after_forward` stay: the request may still change what names mean. A call of gRPC goes to the
    address for those, whatever it calls."""
    if route is None:
        called = any(map(is_grpc_type, head.read.get(b"content-type", ())))
        return ProtocolRoute("*", "/**", RouteClass.RETRIEVE, rpc=called)
    class_ = RouteClass.WRITE if route.route_class is RouteClass.WRITE else RouteClass.RETRIEVE
    return ProtocolRoute(
        route.methods,
        route.pattern,
        class_,
        rpc=route.rpc,
        before_forward=route.before_forward,
        after_forward=route.after_forward,
    )
