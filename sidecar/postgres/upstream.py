"""Opens connections to one PostgreSQL server, logged in and ready, and cancels what they run."""

import asyncio
from functools import partial

from sidecar.http.client.dialler import ClientLimits, Destination, Dialler
from sidecar.http.client.egress_guard import EgressGuard
from sidecar.postgres.backend import BackendKey
from sidecar.postgres.server import Login, ServerConnection
from sidecar.postgres.startup import cancel_request


class Upstream:
    """One server. With a context in `destination`, TLS is asked for and the server is verified.
    Connecting may take `limits.connect_seconds`, TLS and the login `login_seconds`."""

    def __init__(
        self,
        destination: Destination,
        guard: EgressGuard,
        limits: ClientLimits,
        message_bytes: int,
        login_seconds: float = 10.0,
    ) -> None:
        self._context = destination.context
        self._server_name = destination.server_name or destination.host
        # TLS begins behind an SSLRequest, so a new connection has none.
        plain = destination._replace(context=None)
        self._login_seconds = login_seconds
        factory = partial(ServerConnection, message_bytes, limits.buffer_bytes)
        self._dialler: Dialler[ServerConnection] = Dialler(plain, guard, limits, factory)
        # Of its own, since statements are cancelled when all places are taken, above all.
        self._cancels: Dialler[ServerConnection] = Dialler(plain, guard, limits, factory)

    @property
    def connections(self) -> int:
        """The number of connections that are open, or being opened."""
        return self._dialler.connections + self._cancels.connections

    async def connect(self, login: Login) -> ServerConnection:
        """Return a new connection that is logged in. Raises `LoginRefused`, `ProtocolFault`, and
        `OSError`: `TlsRefused`, `ConnectionLost`, `TimeoutError`, or that of the network."""
        connection = await self._open(self._dialler)
        try:
            async with asyncio.timeout(self._login_seconds):
                await self._secure(connection)
                await connection.log_in(login)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def cancel(self, key: BackendKey) -> None:
        """Have the server cancel what the connection with `key` runs, if it runs anything. When
        this returns, the server has told the process to stop. Raises as `connect` does."""
        connection = await self._open(self._cancels)
        try:
            async with asyncio.timeout(self._login_seconds):
                await self._secure(connection)
                connection.write(cancel_request(key))
                # The server answers by closing the connection.
                await asyncio.shield(connection.lost)
        finally:
            connection.abort()

    async def _open(self, dialler: Dialler[ServerConnection]) -> ServerConnection:
        connection = await dialler.connect()
        connection.lost.add_done_callback(lambda _: dialler.free())
        return connection

    async def _secure(self, connection: ServerConnection) -> None:
        if self._context is not None:
            await connection.secure(self._context, self._server_name)
