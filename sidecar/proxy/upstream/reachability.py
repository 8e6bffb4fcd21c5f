"""Tells the log when a data source can't be reached, with the cause, and when it answers again.

The agent is told the source's alias. The address and the cause are for the log alone.
"""

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from policies.ground.os_errors import numbered
from sidecar.http.client.dialler import Dialler
from sidecar.platform.state_logger import StateLogger
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.proxy_metrics import UpstreamUnreachable, UpstreamUnverified

log = logging.getLogger(__name__)

Connected = TypeVar("Connected")

_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)


class Reachability:
    """Whether the data source `alias` at `address` can be reached. `monotonic` is a clock in
    seconds."""

    def __init__(self, alias: str, address: str, monotonic: Callable[[], float]) -> None:
        self.alias = alias
        self._state = StateLogger(
            log,
            f"data source `{alias}` at `{address}` can't be reached",
            f"data source `{alias}` answers again",
            monotonic,
        )

    async def connected(self, connecting: Awaitable[Connected]) -> Connected:
        """The connection that a dialler or a pool opens. Raises `UpstreamUnverified` or
        `UpstreamUnreachable`."""
        try:
            return await connecting
        except ssl.SSLError as error:
            self._state.failing(cause(error))
            raise UpstreamUnverified(f"the data source `{self.alias}` can't be verified") from error
        except OSError as error:
            self._state.failing(cause(error))
            raise UpstreamUnreachable(f"the data source `{self.alias}` can't be reached") from error

    def answered(self) -> None:
        """Note that it has answered. Costs next to nothing while nothing is wrong."""
        if self._state.problem is not None:
            self._state.recovered()


class TunnelDialler:
    """Opens connections for tunnels, whose bytes are not read: a connection is all that can be seen
    of an answer. `free` gives a connection's place back."""

    def __init__(self, dialler: Dialler[BufferedConnection], reachability: Reachability) -> None:
        self._dialler = dialler
        self._reachability = reachability
        self.free = dialler.free

    async def connect(self) -> BufferedConnection:
        """Raises like `Reachability.connected`."""
        connection = await self._reachability.connected(self._dialler.connect())
        self._reachability.answered()
        return connection


def cause(error: OSError) -> str:
    """Why no connection was made, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        if error.errno in _NO_SUCH_NAME:
            return "its name is not found"
        return f"its name can't be resolved: {(error.strerror or str(error)).lower()}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "the connection timed out"
    # Without the loop's own text, which repeats the address.
    return str(error) if error.errno is None else numbered(error.errno)
