"""CONNECT: a tunnel to a configured source, and to nothing else (RFC 9110 section 9.3.6, RFC 9931).

What leads nowhere, or may not be, gets its answer and the end of the connection; nothing behind it
is read. What will pass unread is decided, and connected, before it is granted, so that a denial is
one that the agent can read. What is spoken in the tunnel is `passage.py`'s.

Knows the forms of a CONNECT. Knows nothing of what follows it.
"""

import asyncio

from aiohttp import HttpVersion10, HttpVersion11

from policies.ground.errors import Malformed, SluiceError
from sidecar.http.authority import Authority, authority
from sidecar.http.headers import RequestHead, sort_request_fields
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse, ResponseSent, fields_of_event
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import Denied, Refused
from sidecar.proxy.pipeline.passthrough import AllowedTunnel
from sidecar.proxy.routing.unknown_destination import UnknownDestination, place_of
from sidecar.proxy.tunnel.fixed_destination import Destination
from sidecar.proxy.tunnel.tunnel_dispatch import TunnelDispatch

# RFC 9209.
_WHY = {400: b"http_request_error", 403: b"http_request_denied", 502: b"destination_unavailable"}


class Connect:
    """The CONNECTs of one port."""

    def __init__(
        self,
        passage: TunnelDispatch,
        outside: UnknownDestination,
        errands: BackgroundTasks,
        limits: ProxyLimits,
    ) -> None:
        self._passage = passage
        self._outside = outside
        self._errands = errands
        self._limits = limits

    async def serve(self, request: AgentRequest) -> LocalResponse | ResponseSent:
        """Answers one request; where it is granted, once the tunnel has ended."""
        try:
            to = self._found(request)
            passed = await self._decided(to)
        except Refused as refused:
            return _last(request, await self._outside.refuse(request, refused))
        except Denied as denied:
            reply = LocalResponse.of_denial(denied.status, denied.decision, denied.event_id)
            return _last(request, reply)
        except SluiceError as error:
            return _last(request, LocalResponse.of_error(error))
        try:
            side, within = request.tunnel(self._limits.buffer_bytes)
        except ConnectionError:
            if passed is not None:
                passed.drop()
            raise
        side.transport.write(_granted(passed))
        # Whatever becomes of this request, what is under way is recorded to its end.
        going = self._errands.run(self._passage.go(side, within, to, passed))
        try:
            await asyncio.wait((going,))
        except asyncio.CancelledError:
            side.transport.abort()
            raise
        return ResponseSent(keep_alive=False)

    def _found(self, request: AgentRequest) -> Destination:
        outside = self._outside
        try:
            head = sort_request_fields(request.fields)
            where = _framed(request, head)
        except Malformed as error:
            raise outside.unreadable(error.message) from error
        place = place_of("tcp", where)
        group = self._passage.places.names.at(where)
        if group is None:
            reason = "no source of the configuration has this address"
            raise outside.unknown(reason, outside.who(head, place), place)
        guarded = self._passage.places.at(group)
        who = outside.who(head, place, None if guarded is None else guarded.who)
        return Destination(where, group, who)

    async def _decided(self, to: Destination) -> AllowedTunnel | None:
        """What is decided for the whole tunnel; None where each request in it will be judged."""
        guarded = self._passage.opaque(to.group)
        return None if guarded is None else await guarded.opaque.open(to.who)


def _granted(passed: AllowedTunnel | None) -> bytes:
    """The answer, which tells of a denial that the source's mode lets through."""
    told = [] if passed is None else [each for each in passed.pendings if each.report_only]
    fields = fields_of_event(told[0].event_id, let_through=True) if told else ()
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    return b"HTTP/1.1 200 Connection established\r\n%b\r\n" % lines


def _framed(request: AgentRequest, head: RequestHead) -> Authority:
    """Where a CONNECT leads whose frame can be trusted; `Malformed` for any other."""
    read = head.read
    if request.version not in (HttpVersion10, HttpVersion11):
        raise Malformed("the version of HTTP is not 1.0 or 1.1")
    for name in (b"transfer-encoding", b"content-length", b"upgrade", b"expect"):
        if name in read:
            raise Malformed(f"a CONNECT with the header `{name.decode()}`")
    if not request.target.isascii():
        raise Malformed("the target of a CONNECT is host:port")
    where = authority(request.target)
    host = head.one(b"host")
    if host is None and request.version == HttpVersion11:
        raise Malformed("the header `host` is missing")
    if host is not None and authority(host.decode("latin-1"), where.port) != where:
        raise Malformed("the header `host` and the target name two servers")
    return where


def _last(request: AgentRequest, reply: LocalResponse) -> LocalResponse:
    """Nothing behind a tunnel that is not granted is read: it may be what was to go through it."""
    request.stop_reading()
    reply.close = True
    why = _WHY.get(reply.status)
    if why is not None:
        reply.fields = (*reply.fields, (b"Proxy-Status", b"sluice; error=" + why))
    return reply
