"""A port that the agent takes for the data source: the parts of one reverse proxy, put together,
and their life from the first connection to the last.

Knows which parts there are. Knows nothing of what passes through.
"""

import asyncio

from policies.ground.clock import Clock
from sidecar.enforce import Enforcer
from sidecar.identity import AgentIdentity
from sidecar.protocols.kinds import dialect_of
from sidecar.protocols.names import Naming
from sidecar.proxy.agent_server import AgentServer
from sidecar.proxy.attribution import default_attribution
from sidecar.proxy.forward import Forward
from sidecar.proxy.gate import Gate
from sidecar.proxy.judge import Judge
from sidecar.proxy.limits import LIMITS, Limits
from sidecar.proxy.lineage import Lineage
from sidecar.proxy.upstream import Upstream
from sidecar.settings import Source


class Listener:
    """The reverse proxy in front of one configured source, for one agent."""

    def __init__(
        self,
        source: Source,
        agent: AgentIdentity,
        enforcer: Enforcer,
        clock: Clock,
        limits: Limits = LIMITS,
    ) -> None:
        self._source = source
        self._limits = limits
        self._upstream = Upstream(source.upstream, limits)
        dialect = dialect_of(source, clock.monotonic)
        judge = Judge(source.kind, Naming(source).whole, agent, enforcer)
        self._lineage = Lineage(enforcer)
        forward = Forward(dialect, self._upstream, judge, self._lineage, clock.monotonic, limits)
        self._gate = Gate(
            dialect,
            judge,
            forward,
            default_attribution(source.defaults, agent.id or agent.role),
            limits,
            writes=source.writes == "allow",
            marked=source.sensitivity_field,
        )
        self._server: AgentServer | None = None
        self._sockets: asyncio.Server | None = None

    async def start(self) -> None:
        """Opens the port. Raises `OSError` where it is taken, `RuntimeError` where the server does
        not behave as it was told to."""
        await self._upstream.open()
        self._server = AgentServer(self._gate.serve, self._limits)
        self._server.prove_settings()
        listen = self._source.listen
        self._sockets = await asyncio.get_running_loop().create_server(
            self._server, listen.host, listen.port, backlog=1024
        )

    @property
    def port(self) -> int:
        """The port that is open, where the configuration left the choice to the system."""
        assert self._sockets is not None
        port: int = self._sockets.sockets[0].getsockname()[1]
        return port

    async def close(self, seconds: float) -> None:
        """Takes no more connections, lets what is under way finish for `seconds`, then ends it."""
        if self._sockets is not None:
            self._sockets.close()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(seconds)
        self._lineage.flush()
        await self._upstream.close()
