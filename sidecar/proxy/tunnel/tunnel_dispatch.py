"""Decides what becomes of a connection whose destination is known, by its first bytes:

    HTTP                  each request goes to its source's pipeline
    TLS, `terminate`      the TLS ends here with the operator's certificate; then as HTTP
    TLS                   decided once for the whole source, and passed through unread

A TLS hello must name the destination. A hello that names another server, names none or hides the
name is denied and recorded, with a TLS alert as the answer. The connection to the data source leads
where the configuration says, whatever the hello or a packet says.

Knows the protocols with which a connection may begin. Knows nothing of how a destination is found.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial

from policies.ground.errors import Malformed, SluiceError
from sidecar.http.authority import Authority
from sidecar.http.server.request import ConnectionFactory
from sidecar.http.tls_contexts import server_context
from sidecar.http.tls_layer import TlsLayer
from sidecar.protocols.protocol import SourceRef
from sidecar.proxy.connections import BufferedConnection
from sidecar.proxy.downstream import BackgroundTasks, serve_postgres
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Denied, Refused
from sidecar.proxy.pipeline.passthrough import AllowedTunnel, Passthrough
from sidecar.proxy.routing.refused_destination import (
    NAME_MISMATCH,
    UnknownDestination,
    requested_source,
)
from sidecar.proxy.routing.source_lookup import SourceGroup, upstream_parts
from sidecar.proxy.routing.source_router import Destination, NamedDestinations, TunnelRouter
from sidecar.proxy.tunnel.client_hello import HANDSHAKE, Hello, HelloReader

NO_SERVER_NAME = "no_server_name"
ENCRYPTED_HELLO = "encrypted_hello"

# A fatal alert, `access_denied` (RFC 8446 section 6.2): the one way to refuse before the handshake.
_ALERT = b"\x15\x03\x03\x00\x02\x02\x31"


class TunnelDispatch:
    """Handles tunnels and redirected connections of one port, once their destination is known.
    `allow_encrypted_hello` permits a hello to hide the real name behind the one that it shows."""

    def __init__(
        self,
        destinations: NamedDestinations,
        unknown: UnknownDestination,
        background_tasks: BackgroundTasks,
        limits: ProxyLimits,
        *,
        allow_encrypted_hello: bool,
    ) -> None:
        self.destinations = destinations
        self._unknown = unknown
        self._background_tasks = background_tasks
        self._limits = limits
        self._allow_encrypted_hello = allow_encrypted_hello
        self._contexts: Mapping[str, ssl.SSLContext] = {
            alias: server_context(endpoint.source.terminate)
            for alias, endpoint in destinations.endpoints.items()
            if endpoint.source.terminate is not None
        }

    def termination(self, group: SourceGroup) -> ssl.SSLContext | None:
        """Return the server context with which TLS to these sources is terminated; None if it isn't
        terminated here."""
        # Sources at one name share one handshake, so all of them have to terminate TLS.
        found = [self._contexts.get(alias) for alias in group.aliases]
        return found[0] if all(found) else None

    def passthrough(self, group: SourceGroup) -> Passthrough | None:
        """Return the passthrough for TLS to the source, which leaves it unread; None if the group
        has several sources, terminates TLS, or speaks plain HTTP."""
        endpoint = self.destinations.sole_endpoint(group)
        if endpoint is None or self.termination(group) is not None:
            return None
        # The server at an `http` upstream couldn't read the agent's TLS.
        url = group.rows[0].url
        readable = upstream_parts(url).scheme in ("https", "tcp")
        return endpoint.passthroughs[url] if readable else None

    async def run(
        self,
        agent: BufferedConnection,
        within: ConnectionFactory,
        destination: Destination,
        tunnel: AllowedTunnel | None,
    ) -> None:
        """Handle one connection to its end. `tunnel` is set if the connection as a whole has
        already been decided."""
        try:
            endpoint = self.destinations.sole_endpoint(destination.group)
            if endpoint is not None and endpoint.sessions is not None:
                await serve_postgres(agent, endpoint)
            elif destination.group.is_tcp or await self._is_unread_tls(agent, within, destination):
                # `_pass_through` now owns the tunnel.
                tunnel, decided = None, tunnel
                await self._pass_through(agent, destination, decided)
            elif tunnel is not None:
                # This was decided for TLS passed unread, but each request will be decided instead.
                tunnel.drop()
                tunnel = None
            await agent.closed
        finally:
            if tunnel is not None:
                tunnel.drop()
            agent.transport.abort()

    async def _is_unread_tls(
        self, agent: BufferedConnection, within: ConnectionFactory, destination: Destination
    ) -> bool:
        """Return True if the connection is TLS that is to be passed through unread. Otherwise this
        has handed the connection to a protocol, or refused it."""
        where = destination.where
        try:
            hello = await read_hello(agent, self._limits.opening_seconds)
        except Malformed as error:
            # An agent that sent nothing asked for nothing.
            if agent.buffered:
                source = requested_source("tcp", where)
                await self._unknown.record(UNREADABLE, error.message, source)
            agent.transport.close()
            return False
        if hello is None:
            plain = TunnelRouter(destination, self.destinations, self._unknown, "http")
            agent.hand_to(within(plain.serve))
            return False
        problem = self._hello_problem(hello, destination)
        if problem is not None:
            await self.refuse(agent, *problem, requested_source("https", where))
            return False
        context = self.termination(destination.group)
        if context is None:
            return True
        terminated = TunnelRouter(destination, self.destinations, self._unknown, "https")
        factory = partial(within, terminated.serve)
        on_invalid = partial(self._record_invalid_tls, where)
        agent.hand_to(TlsLayer(context, factory, self._limits.handshake_seconds, on_invalid))
        return False

    async def _pass_through(
        self, agent: BufferedConnection, destination: Destination, tunnel: AllowedTunnel | None
    ) -> None:
        passthrough = self.passthrough(destination.group)
        if passthrough is None:
            reason = (
                "TLS arrived, but this source has no TLS configured, or is one of several by path"
            )
            source = requested_source("https", destination.where)
            await self.refuse(agent, UNREADABLE, reason, source)
            return
        if tunnel is None:
            try:
                tunnel = await passthrough.open(destination.who)
            except (Denied, Refused, SluiceError):
                agent.transport.write(_ALERT)
                agent.transport.close()
                return
        await tunnel.run(agent)

    def name_problem(self, hello: Hello) -> tuple[str, str] | None:
        """Return the reason why the server name in the hello can't be used, as a policy name and a
        message; None if it can be used."""
        # Checked first: if the real name is hidden, the visible one means nothing.
        if hello.encrypted and not self._allow_encrypted_hello:
            return ENCRYPTED_HELLO, "the name in the TLS hello is encrypted"
        if hello.server_name is None:
            return NO_SERVER_NAME, "the TLS hello names no server"
        return None

    def _hello_problem(self, hello: Hello, destination: Destination) -> tuple[str, str] | None:
        """Return the reason why the hello doesn't fit the destination, as a policy name and a
        message; None if it fits."""
        problem = self.name_problem(hello)
        if problem is not None or hello.server_name is None:
            return problem
        named = Authority(hello.server_name, destination.where.port)
        group = self.destinations.table.at(named)
        # Compares the sources, not the spelling: one source may have several names.
        if group is None or group.aliases != destination.group.aliases:
            return NAME_MISMATCH, "the TLS hello names another server than the connection leads to"
        return None

    async def refuse(
        self, agent: BufferedConnection, policy_name: str, reason: str, source: SourceRef
    ) -> None:
        """Record the refusal, send a TLS alert in place of an answer, and close the connection."""
        await self._unknown.record(policy_name, reason, source)
        agent.transport.write(_ALERT)
        agent.transport.close()

    def _record_invalid_tls(self, where: Authority, reason: str) -> None:
        source = requested_source("https", where)
        self._background_tasks.run(self._unknown.record(UNREADABLE, reason, source))


async def read_hello(agent: BufferedConnection, seconds: float) -> Hello | None:
    """Return the TLS ClientHello that the connection starts with; None if it starts with something
    else. Raises `Malformed` if the hello is faulty, or isn't complete after `seconds` or when the
    connection ends."""
    try:
        async with asyncio.timeout(seconds):
            return await _read_hello(agent)
    except TimeoutError:
        raise Malformed("the first bytes did not arrive in time") from None


async def _read_hello(agent: BufferedConnection) -> Hello | None:
    reader = HelloReader()
    read = 0
    while True:
        data = agent.buffered_from(read)
        if read == 0 and data and data[0] != HANDSHAKE:
            return None
        read += len(data)
        hello = reader.feed(data)
        if hello is not None:
            return hello
        if not await agent.wait_for_more():
            raise Malformed("the TLS hello is cut off" if read else "nothing was sent")
