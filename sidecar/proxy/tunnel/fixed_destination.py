"""Requests on a connection whose destination is settled: inside a tunnel, opened or plain, or one
that was redirected here. Each is judged by the gate of its source; its `Host` must be of the same
destination, since what it names otherwise is somewhere nobody asked to go (proxy.md B 19).

Knows the destination. Knows nothing of what is asked.
"""

from collections.abc import Mapping
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.http.authority import DEFAULT_PORTS, Authority, authority
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import canonical
from sidecar.proxy.local_response import LocalResponse, ResponseSent
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import SourceGroup, SourceTable
from sidecar.proxy.routing.unknown_destination import NAME_MISMATCH, UnknownDestination, place_of


class Destination(NamedTuple):
    """Where a connection goes: `group` are the sources at `where`, `who` asks."""

    where: Authority
    group: SourceGroup
    who: Attribution


class NamedDestinations(NamedTuple):
    """Every source that can be reached by a name: `names` finds it, `guarded` has it by its
    alias."""

    names: SourceTable
    guarded: Mapping[str, SourceEndpoint]

    def at(self, group: SourceGroup) -> SourceEndpoint | None:
        """The one source there; None where only a path could tell."""
        return None if group.sole is None else self.guarded[group.sole.alias]


class FixedDestination:
    """Answers the requests of one connection. `scheme` is what is spoken on it."""

    def __init__(
        self,
        destination: Destination,
        places: NamedDestinations,
        outside: UnknownDestination,
        scheme: str,
    ) -> None:
        self._destination = destination
        self._places = places
        self._outside = outside
        self._scheme = scheme

    async def serve(self, request: AgentRequest) -> LocalResponse | ResponseSent:
        """Answers one request. Whatever is refused has been recorded."""
        try:
            guarded = self._found(request)
        except Refused as refused:
            return await self._outside.refuse(request, refused)
        return await guarded.gate.serve(request)

    def _found(self, request: AgentRequest) -> SourceEndpoint:
        outside, destination = self._outside, self._destination
        place = place_of(self._scheme, destination.where)
        head = outside.read(request, place)
        who = outside.who(head, place)
        try:
            host = self._host(head)
            target = canonical(request.target)
        except Malformed as error:
            raise outside.unreadable(error.message, place) from error
        group = self._places.names.at(host)
        if group is None or group.aliases != destination.group.aliases:
            reason = "the header `host` names another server than the connection leads to"
            raise Refused(403, NAME_MISMATCH, reason, who, place=place_of(self._scheme, host))
        found = destination.group.find(target)
        if found is None or found.source.kind == "tcp":
            raise outside.unknown("no source there has this path", who, place)
        request.target = found.target
        return self._places.guarded[found.source.alias]

    def _host(self, head: RequestHead) -> Authority:
        raw = head.one(b"host")
        if raw is None:
            return self._destination.where
        return authority(raw.decode("latin-1"), DEFAULT_PORTS[self._scheme])
