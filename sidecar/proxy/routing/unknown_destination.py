"""Requests and connections that lead to no configured source. They are denied, and recorded under
the name that was asked for (`<scheme>://<host>:<port>`) or the name of the port where they arrived,
at the highest level, since nothing is known about what lies there. No policy allows them, and
nothing is connected.

Knows the agent and the enforcer. Knows no source.
"""

from policies.definitions.model import Sensitivity
from policies.ground.errors import Malformed, SluiceError
from sidecar.enforce import Enforcer
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.authority import Authority
from sidecar.http.headers import RequestHead
from sidecar.http.server.request import HttpRequest
from sidecar.live_keys import AgentIdentity
from sidecar.protocols.messages import SourceRef
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Authorizer, Refused
from sidecar.proxy.proxy_metrics import ProxyMetrics

UNKNOWN = "unknown_destination"
NAME_MISMATCH = "name_mismatch"

_KIND = "web"
_LEVEL: Sensitivity = "critical"


def requested_source(scheme: str, where: Authority | str) -> SourceRef:
    """The requested destination, as the audit trail names it."""
    return SourceRef(f"{scheme}://{where}", _LEVEL)


class UnknownDestination:
    """Refuses requests to one listening port, which the audit trail names `port_name`."""

    def __init__(self, port_name: str, agent: AgentIdentity, enforcer: Enforcer) -> None:
        self._metrics = ProxyMetrics(enforcer.metrics, _KIND)
        self._authorizer = Authorizer(_KIND, requested_source(_KIND, port_name), agent, enforcer)
        self.default = Attribution(agent.default_user, None, None, None)
        """Who makes a request that names no user."""

    def who(
        self, head: RequestHead, source: SourceRef | None = None, default: Attribution | None = None
    ) -> Attribution:
        """Who makes the request; `default` if it names no user. Raises `Refused`."""
        try:
            return attribution(head, default or self.default)
        except Malformed as error:
            raise self.unreadable(error.message, source) from error

    def unreadable(self, reason: str, source: SourceRef | None = None) -> Refused:
        """The refusal closes the connection: where the next request begins is no longer certain."""
        return Refused(400, UNREADABLE, reason, self.default, source=source, close=True)

    def no_source(self, reason: str, who: Attribution, source: SourceRef | None = None) -> Refused:
        return Refused(403, UNKNOWN, reason, who, source=source)

    async def record(self, policy_name: str, reason: str, source: SourceRef | None = None) -> None:
        """Records a denial on a connection that gets no answer."""
        self._metrics.count_request("DENY", 0)
        await self._authorizer.record(
            Refused(403, policy_name, reason, self.default, source=source)
        )

    async def refuse(self, request: HttpRequest, refused: Refused) -> LocalResponse:
        """Records the refusal; returns the response to the agent."""
        try:
            denied = await self._authorizer.refuse(refused, request.method, request.target)
        except SluiceError as error:
            self._metrics.count_request("DENY", error.status)
            # The record was lost. The request stays refused, with the spool's 503. With its body
            # unread, the connection can't carry another request.
            return LocalResponse.of_error(error, close=not request.body.complete)
        response = LocalResponse.of_denial(
            denied.status, denied.decision, denied.event_id, close=denied.close
        )
        self._metrics.count_request("DENY", response.status)
        return response
