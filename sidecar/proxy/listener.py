"""A port on which agents speak HTTP to the proxy, from its first connection to its last. Knows
nothing of what passes through: a handler answers."""

import asyncio

from policies.ground.listen import Listen
from sidecar.proxy.agent_connection import Handler
from sidecar.proxy.agent_server import AgentServer
from sidecar.proxy.limits import LIMITS, Limits
from sidecar.proxy.short_way import ShortWay


class Listener:
    """Listens on `listen` and answers by `handler`, or by `short_way` what may take it."""

    def __init__(
        self,
        listen: Listen,
        handler: Handler,
        limits: Limits = LIMITS,
        short_way: ShortWay | None = None,
    ) -> None:
        self._listen = listen
        self._handler = handler
        self._short_way = short_way
        self._limits = limits
        self._server: AgentServer | None = None
        self._sockets: asyncio.Server | None = None

    async def start(self) -> None:
        """Opens the port. Raises `OSError` where it is taken, `RuntimeError` where the server does
        not behave as it was told to."""
        self._server = AgentServer(self._handler, self._limits, self._short_way)
        self._server.prove_settings()
        self._sockets = await asyncio.get_running_loop().create_server(
            self._server, self._listen.host, self._listen.port, backlog=1024
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
