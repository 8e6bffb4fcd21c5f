"""The smallest use of the engine: passes the messages of agents to a server and back, unread."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sidecar.http.client.dialler import Destination
from sidecar.http.client.egress_guard import EgressGuard, LoopGuard
from sidecar.postgres import backend
from sidecar.postgres.agent import AgentConnection
from sidecar.postgres.backend import BackendKey
from sidecar.postgres.cancel_keys import CancelKeys
from sidecar.postgres.connection import FramedConnection
from sidecar.postgres.frames import ProtocolFault, from_agent
from sidecar.postgres.server import Login, LoginRefused, ServerConnection
from sidecar.postgres.startup import (
    VERSION_3_2,
    CancelRequest,
    receive_password,
    receive_startup,
)
from sidecar.postgres.upstream import Upstream
from sidecar.proxy.connections import BufferedConnection
from sidecar.proxy.limits import LIMITS

SECONDS = 10.0


def upstream_of(
    port: int,
    context: ssl.SSLContext | None = None,
    server_name: str = "127.0.0.1",
    message_bytes: int = 1 << 30,
    seconds: float = SECONDS,
) -> Upstream:
    guard = EgressGuard("127.0.0.1", (), LoopGuard(), lambda _: None, lambda: 0.0)
    destination = Destination("127.0.0.1", port, context, server_name)
    return Upstream(destination, guard, LIMITS.upstream, message_bytes, seconds)


class Relay:
    """Serves agents with one `login` at `upstream`, over TLS if there is a `context`. With
    `password`, an agent has to know it."""

    def __init__(
        self,
        upstream: Upstream,
        login: Login,
        context: ssl.SSLContext | None = None,
        password: bytes | None = None,
    ) -> None:
        self._upstream = upstream
        self._login = login
        self._context = context
        self._password = password
        self._keys: CancelKeys[ServerConnection] = CancelKeys()
        self._tasks: set[asyncio.Task[None]] = set()
        self.startups: list[object] = []
        self.ended: list[BaseException | None] = []
        """How each connection has ended."""

    def accept(self) -> BufferedConnection:
        """Make a protocol as the proxy's acceptor does."""
        relay = self

        class Accepted(BufferedConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                task = asyncio.get_running_loop().create_task(relay._serve(self))
                relay._tasks.add(task)

        return Accepted(LIMITS.buffer_bytes)

    async def _serve(self, accepted: BufferedConnection) -> None:
        agent = AgentConnection()
        accepted.hand_to(agent)
        end: BaseException | None = None
        try:
            await self._run(agent)
        except (ProtocolFault, LoginRefused, OSError) as error:
            end = error
            sqlstate = getattr(error, "sqlstate", "08006")
            agent.write(backend.error(sqlstate, str(error), severity="FATAL"))
        finally:
            self.ended.append(end)
            agent.close()

    async def _run(self, agent: AgentConnection) -> None:
        startup = await receive_startup(agent, self._context, SECONDS)
        self.startups.append(startup)
        if isinstance(startup, CancelRequest):
            running = self._keys.find(startup.key)
            if running is not None and running.key is not None:
                await self._upstream.cancel(running.key)
            return
        wanted = self._password
        if wanted is not None and await receive_password(agent, SECONDS) != wanted:
            raise LoginRefused("28P01", "the password is wrong")
        server = await self._upstream.connect(self._login)
        key = self._keys.issue(server, long=startup.version >= VERSION_3_2)
        try:
            agent.admit(from_agent())
            _greet(agent, server, key)
            await _join(agent, server)
        finally:
            self._keys.withdraw(key)
            server.terminate()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _greet(agent: AgentConnection, server: ServerConnection, key: BackendKey) -> None:
    agent.write(backend.AUTHENTICATION_OK)
    for name, setting in server.parameters.items():
        agent.write(backend.parameter_status(name, setting))
    agent.write(backend.backend_key_data(*key))
    agent.write(backend.ready(server.status))


async def _join(agent: AgentConnection, server: ServerConnection) -> None:
    """Pass messages both ways until one side ends."""
    loop = asyncio.get_running_loop()
    ways = [loop.create_task(_pass(agent, server)), loop.create_task(_pass(server, agent))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        ends = await asyncio.gather(*ways, return_exceptions=True)
    for end in ends:
        if isinstance(end, ProtocolFault):
            raise end


async def _pass(source: FramedConnection, sink: FramedConnection) -> None:
    while True:
        frame = await source.read()
        sink.write(frame.raw)
        await sink.drain(SECONDS)


@asynccontextmanager
async def relaying(relay: Relay) -> AsyncIterator[int]:
    """Yield the port at which `relay` serves."""
    server = await asyncio.get_running_loop().create_server(relay.accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await relay.close()
