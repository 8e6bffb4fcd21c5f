"""What is known of a request so far, and what it comes to where it is refused and goes on
nevertheless, by its source's mode (`report`). Judges nothing."""

from collections.abc import Iterable

from policies.ground.errors import Malformed
from sidecar.http.body_budget import Lease
from sidecar.http.headers import RequestHead
from sidecar.protocols.messages import FORWARD_UNCHANGED, RoutedRequest
from sidecar.protocols.route_table import ProtocolRoute, RouteClass
from sidecar.proxy.messages import request_reader as intake
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.forward import AllowedRequest
from sidecar.proxy.proxy_metrics import UNDECIDED
from sidecar.recorder import RecordedDecision


class RequestContext:
    """`read` is what the request's head says, `asked` what it is once a row of the table covers
    it; `body` is the whole body where it had to be read, and `lease` what that
    holds; `decision` what it came to. `started` is
    when it began."""

    __slots__ = ("asked", "body", "decision", "head", "lease", "read", "route", "started")

    def __init__(self, started: float, lease: Lease, asked: RoutedRequest | None = None) -> None:
        self.lease = lease
        self.started = started
        self.decision = UNDECIDED
        self.head: RequestHead | None = None
        self.read: RoutedRequest | None = None
        self.route: ProtocolRoute | None = None
        self.asked = asked
        self.body: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the body that was read; 0 where there is none."""
        return 0 if self.body is None else len(self.body)

    def let_through(self, request: AgentRequest, pending: RecordedDecision) -> AllowedRequest:
        """The request as it came, for `pending`, whose record is durable. Raises `Malformed` where
        it was not read that far."""
        head, asked = self.head, self.read
        if head is None or asked is None:
            raise Malformed("the request can't be read")
        if self.body is None and request.partly_read:
            raise Malformed("the beginning of the body was read, and is not kept")
        if self.body is None and b"expect" in head.read:
            request.welcome_body()
        ask = intake.forwarded(request, head, asked.target, self.body, readable=False)
        return AllowedRequest(
            _as_it_is(self.route), asked, ask, FORWARD_UNCHANGED, (), [pending], self.started
        )


def decided(pendings: Iterable[RecordedDecision]) -> str:
    """In one word, what a set of decisions that all pass came to."""
    passing = [pending.report_only for pending in pendings]
    return UNDECIDED if not passing else "DENY" if any(passing) else "ALLOW"


def _as_it_is(route: ProtocolRoute | None) -> ProtocolRoute:
    """Nothing is read of what it returns; what it may change of names is still heard of."""
    if route is None:
        return ProtocolRoute("*", "/**", RouteClass.RETRIEVE)
    class_ = RouteClass.WRITE if route.route_class is RouteClass.WRITE else RouteClass.RETRIEVE
    return ProtocolRoute(
        route.methods,
        route.pattern,
        class_,
        before_forward=route.before_forward,
        after_forward=route.after_forward,
    )
