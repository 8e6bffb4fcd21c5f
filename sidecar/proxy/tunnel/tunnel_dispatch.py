"""What becomes of a connection whose destination is known, as its first bytes tell:

    HTTP                each request judged by its source's gate
    TLS, `terminate`    ended here with the operator's certificate; then as HTTP
    TLS                 decided once for the whole source, and joined to it unread

A TLS hello must name the destination: another name, none, or one that is hidden is denied and
recorded, with an alert in place of an answer. The connection to the data source goes to where the
configuration says, whatever the hello or a packet says.

Knows what may come first. Knows nothing of how a destination is found.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial

from policies.ground.errors import Malformed, SluiceError
from sidecar.http.authority import Authority
from sidecar.http.tls_contexts import server_context
from sidecar.protocols.messages import SourceRef
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.connections.tls import TlsLayer
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.request import Within
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Denied, Refused
from sidecar.proxy.pipeline.passthrough import AllowedTunnel
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import SourceGroup, upstream_parts
from sidecar.proxy.routing.unknown_destination import NAME_MISMATCH, UnknownDestination, place_of
from sidecar.proxy.tunnel.client_hello import HANDSHAKE, Hello, HelloReader
from sidecar.proxy.tunnel.fixed_destination import Destination, FixedDestination, NamedDestinations

NO_SERVER_NAME = "no_server_name"
ENCRYPTED_HELLO = "encrypted_hello"

# A fatal alert, `access_denied` (RFC 8446 section 6.2): the one way to say no before TLS is spoken.
_ALERT = b"\x15\x03\x03\x00\x02\x02\x31"


class TunnelDispatch:
    """For the connections of one port. `hidden` is whether a hello may hide the name that counts
    behind the one that it shows."""

    def __init__(
        self,
        places: NamedDestinations,
        outside: UnknownDestination,
        errands: BackgroundTasks,
        limits: ProxyLimits,
        *,
        hidden: bool,
    ) -> None:
        self.places = places
        self._outside = outside
        self._errands = errands
        self._limits = limits
        self._hidden = hidden
        self._contexts: Mapping[str, ssl.SSLContext] = {
            alias: server_context(guarded.source.terminate)
            for alias, guarded in places.guarded.items()
            if guarded.source.terminate is not None
        }

    def terminates(self, group: SourceGroup) -> ssl.SSLContext | None:
        """By which certificate TLS to these sources ends here; None where it does not."""
        found = [self._contexts.get(alias) for alias in group.aliases]
        return found[0] if all(found) else None

    def opaque(self, group: SourceGroup) -> SourceEndpoint | None:
        """The source that TLS is passed on to unread; None where it may not be."""
        guarded = self.places.at(group)
        if guarded is None or self.terminates(group) is not None:
            return None
        spoken = upstream_parts(guarded.source.upstream).scheme
        return guarded if spoken in ("https", "tcp") else None

    async def go(
        self,
        agent: BufferedConnection,
        within: Within,
        to: Destination,
        passed: AllowedTunnel | None,
    ) -> None:
        """Sees one connection through to its end. `passed` is what was decided for all of it
        already."""
        try:
            if to.group.opaque or await self._unread(agent, within, to):
                passed, decided = None, passed
                await self._joined(agent, to, decided)
            elif passed is not None:
                passed.drop()
                passed = None
            await agent.over
        finally:
            if passed is not None:
                passed.drop()
            agent.transport.abort()

    async def _unread(self, agent: BufferedConnection, within: Within, to: Destination) -> bool:
        """Whether it is TLS that is passed on unread; else somebody speaks on it, or it ends."""
        try:
            async with asyncio.timeout(self._limits.opening_seconds):
                hello = await opening(agent)
        except (Malformed, TimeoutError) as error:
            if agent.held:
                why = error.message if isinstance(error, Malformed) else "its first bytes are late"
                await self._outside.record(UNREADABLE, why, place_of("tcp", to.where))
            agent.transport.close()
            return False
        if hello is None:
            inside = FixedDestination(to, self.places, self._outside, "http")
            agent.give(within(inside.serve))
            return False
        refused = self._named(hello, to)
        if refused is not None:
            await self.refuse(agent, *refused, place_of("https", to.where))
            return False
        context = self.terminates(to.group)
        if context is None:
            return True
        inside = FixedDestination(to, self.places, self._outside, "https")
        made = partial(within, inside.serve)
        failed = partial(self._failed, to)
        agent.give(TlsLayer(context, made, self._limits.handshake_seconds, failed))
        return False

    async def _joined(
        self, agent: BufferedConnection, to: Destination, passed: AllowedTunnel | None
    ) -> None:
        guarded = self.opaque(to.group)
        if guarded is None:
            reason = "TLS to a source that speaks none, or that a path tells from others"
            await self.refuse(agent, UNREADABLE, reason, place_of("https", to.where))
            return
        if passed is None:
            try:
                passed = await guarded.opaque.open(to.who)
            except (Denied, Refused, SluiceError):
                agent.transport.write(_ALERT)
                agent.transport.close()
                return
        await passed.carry(agent)

    def nameless(self, hello: Hello) -> tuple[str, str] | None:
        """Why nobody can be found by this hello."""
        if hello.encrypted and not self._hidden:
            return ENCRYPTED_HELLO, "the name in the TLS hello is encrypted"
        if hello.server_name is None:
            return NO_SERVER_NAME, "the TLS hello names no server"
        return None

    def _named(self, hello: Hello, to: Destination) -> tuple[str, str] | None:
        """Why this hello is none for this destination."""
        lacks = self.nameless(hello)
        if lacks is not None or hello.server_name is None:
            return lacks
        group = self.places.names.at(Authority(hello.server_name, to.where.port))
        if group is None or group.aliases != to.group.aliases:
            return NAME_MISMATCH, "the TLS hello names another server than the connection leads to"
        return None

    async def refuse(
        self, agent: BufferedConnection, policy_name: str, reason: str, place: SourceRef
    ) -> None:
        """Records it, and tells the agent with an alert in place of an answer."""
        await self._outside.record(policy_name, reason, place)
        agent.transport.write(_ALERT)
        agent.transport.close()

    def _failed(self, to: Destination, reason: str) -> None:
        place = place_of("https", to.where)
        self._errands.run(self._outside.record(UNREADABLE, reason, place))


async def opening(agent: BufferedConnection) -> Hello | None:
    """The TLS hello that a connection begins with; None where it begins with something else. Raises
    `Malformed`, also where it ends before it has begun."""
    reader = HelloReader()
    read = 0
    while True:
        data = agent.held_from(read)
        if read == 0 and data and data[0] != HANDSHAKE:
            return None
        read += len(data)
        hello = reader.feed(data)
        if hello is not None:
            return hello
        if not await agent.more():
            raise Malformed("the TLS hello is cut off" if read else "nothing was sent")
