"""Makes the connections of one port, knows those that are open, and ends them."""

import asyncio

from sidecar.http.server.connection import ServerConnection
from sidecar.http.server.request import Serve, Service


class Connections:
    """A factory of connections to `service`, and those that are open."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.flow = service.flow
        self.open: set[ServerConnection] = set()

    def __call__(self) -> ServerConnection:
        """Return a connection that the port has accepted."""
        return ServerConnection(self.service, self.open, self.service.budget.slot())

    def above(self) -> ServerConnection:
        """Return a connection above a layer that the port has accepted, such as TLS."""
        return ServerConnection(self.service, self.open)

    def within(self, serve: Serve) -> ServerConnection:
        """Return a connection inside an existing one, such as a tunnel. `serve` answers its
        requests."""
        return ServerConnection(self.service._replace(serve=serve), self.open)

    def finish(self) -> list[asyncio.Future[None]]:
        """Ends idle connections at once, and the others after the request that is being answered.
        Each future is done when its connection has ended."""
        return [connection.finish() for connection in list(self.open)]

    async def close(self, seconds: float) -> None:
        """Lets requests finish for `seconds`, then cuts them off."""
        closing = self.finish()
        if closing:
            await asyncio.wait(closing, timeout=seconds)
        await asyncio.gather(*(each.cut() for each in list(self.open)))
