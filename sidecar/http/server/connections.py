"""Makes the connections of one port, keeps the set of those that are open, and ends them."""

import asyncio

from sidecar.http.server.connection import ServerConnection
from sidecar.http.server.request import Serve, Service


class Connections:
    """The connections of one port to `service`: call it to make one; `open` is the set of those
    that are open."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.flow = service.flow
        self.open: set[ServerConnection] = set()

    def __call__(self) -> ServerConnection:
        """Return the protocol of a new connection that the port accepts."""
        return ServerConnection(self.service, self.open, self.service.budget.slot())

    def above(self) -> ServerConnection:
        """Return the protocol of a connection on top of a layer such as TLS, which the port has
        accepted already."""
        return ServerConnection(self.service, self.open)

    def within(self, serve: Serve) -> ServerConnection:
        """Return the protocol of a connection inside an existing one, such as a tunnel. `serve`
        answers the requests on it."""
        return ServerConnection(self.service._replace(serve=serve), self.open)

    def finish(self) -> list[asyncio.Future[None]]:
        """Close idle connections at once, and the others after the request that is being answered.
        Returns a future for each, which is done when that connection has ended."""
        return [connection.finish() for connection in list(self.open)]

    async def close(self, seconds: float) -> None:
        """Let requests finish for up to `seconds`, then cut off those that are left."""
        closing = self.finish()
        if closing:
            await asyncio.wait(closing, timeout=seconds)
        await asyncio.gather(*(each.cut() for each in list(self.open)))
