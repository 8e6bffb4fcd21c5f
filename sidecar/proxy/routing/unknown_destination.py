"""What leads to no configured source: denied, and recorded under the name that was asked for
(`<scheme>://<host>:<port>`), or that of the port where it came in. Its level is the highest there
is: nobody knows what lies there. No policy allows it, and nothing is connected.

Knows the agent and the enforcer. Knows no source.
"""

from policies.ground.errors import Malformed, SluiceError
from sidecar.enforce import Enforcer
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.authority import Authority
from sidecar.http.headers import RequestHead
from sidecar.identity import AgentIdentity
from sidecar.protocols.messages import SourceRef
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages.framing import Tunnelling
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.messages.request_reader import read_head
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Authorizer, Refused
from sidecar.proxy.proxy_metrics import ProxyMetrics

UNKNOWN = "unknown_destination"
NAME_MISMATCH = "name_mismatch"

_KIND = "web"
_LEVEL = "critical"


def place_of(scheme: str, where: Authority | str) -> SourceRef:
    """What is asked for, as the audit trail names it."""
    return SourceRef(f"{scheme}://{where}", _LEVEL)


class UnknownDestination:
    """`door` names the port at which it arrived."""

    def __init__(self, door: str, agent: AgentIdentity, enforcer: Enforcer) -> None:
        self._traffic = ProxyMetrics(enforcer.metrics, _KIND)
        self._judge = Authorizer(_KIND, place_of(_KIND, door), agent, enforcer)
        self._default = Attribution(agent.id or agent.role, None, None, None)

    @property
    def agent(self) -> Attribution:
        """Who asks where nothing says so."""
        return self._default

    def read(self, request: AgentRequest, place: SourceRef | None = None) -> RequestHead:
        """The request's head; raises `Refused` where its frame can't be trusted. `place` is where
        it leads, as far as that is known."""
        try:
            return read_head(request)
        except Malformed as error:
            if isinstance(error, Tunnelling):
                request.stop_reading()
            raise self.unreadable(error.message, place) from error

    def who(
        self, head: RequestHead, place: SourceRef | None = None, default: Attribution | None = None
    ) -> Attribution:
        """Who asks, `default` where the request does not say; raises `Refused`."""
        try:
            return attribution(head, default or self._default)
        except Malformed as error:
            raise self.unreadable(error.message, place) from error

    def unreadable(self, reason: str, place: SourceRef | None = None) -> Refused:
        """Where one request ends and the next begins can't be trusted any more."""
        return Refused(400, UNREADABLE, reason, self._default, place=place, close=True)

    def unknown(self, reason: str, who: Attribution, place: SourceRef | None = None) -> Refused:
        return Refused(403, UNKNOWN, reason, who, place=place)

    async def record(self, policy_name: str, reason: str, place: SourceRef | None = None) -> None:
        """Records what nobody can be told."""
        self._traffic.answered("DENY", 0)
        await self._judge.record(Refused(403, policy_name, reason, self._default, place=place))

    async def refuse(self, request: AgentRequest, refused: Refused) -> LocalResponse:
        """Records it; what the agent is told."""
        try:
            denied = await self._judge.refuse(refused)
        except SluiceError as error:
            self._traffic.answered("DENY", error.status)
            return LocalResponse.of_error(error, close=not request.body.is_eof())
        self._traffic.answered("DENY", denied.status)
        return LocalResponse.of_denial(
            denied.status, denied.decision, denied.event_id, close=denied.close
        )
