"""The HTTP forward proxy: what an agent reaches with `HTTP_PROXY`. It names the data source by the
address it means to reach, in the request's target; what leads to no configured source is denied.

A request in absolute form is that source's from here on: its gate judges it, and the data source
gets the path below its own address (RFC 9112 section 3.2.2). CONNECT is `connect.py`'s.

Knows the directory, and the forms of a target. Knows nothing of what is asked.
"""

import re
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.authority import DEFAULT_PORTS, Authority, authority
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import canonical
from sidecar.proxy.local_response import LocalResponse, ResponseSent
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import SourceGroup, upstream_parts
from sidecar.proxy.routing.unknown_destination import UnknownDestination, place_of
from sidecar.proxy.tunnel.connect import Connect
from sidecar.proxy.tunnel.fixed_destination import NamedDestinations

# Whatever is no printable ASCII, userinfo included, is no authority of anybody's.
_ABSOLUTE = re.compile(r"(https?)://([!-~]+?)((?:[/?#\\].*)?)\Z", re.IGNORECASE | re.DOTALL)


class AbsoluteForm(NamedTuple):
    """A target in absolute form, taken apart; `rest` is its path and query."""

    scheme: str
    where: Authority
    rest: str


def absolute(target: str) -> AbsoluteForm:
    """Raises `Malformed` for any other form, and for what has two readings."""
    found = _ABSOLUTE.match(target)
    if found is None:
        raise Malformed("the target is not http://host or https://host and a path")
    scheme, where, rest = found.groups()
    if "@" in where:
        raise Malformed("the target holds a user")
    scheme = scheme.lower()
    rest = rest if rest.startswith("/") else f"/{rest}"
    return AbsoluteForm(scheme, authority(where, DEFAULT_PORTS[scheme]), rest)


def check_host(head: RequestHead, where: Authority, default: int) -> None:
    """The header `host`, where there is one, means what the target means."""
    raw = head.one(b"host")
    if raw is not None and authority(raw.decode("latin-1"), default) != where:
        raise Malformed("the header `host` and the target name two servers")


class ForwardProxy:
    """For one port."""

    def __init__(
        self, places: NamedDestinations, outside: UnknownDestination, connect: Connect
    ) -> None:
        self._places = places
        self._outside = outside
        self._connect = connect

    async def serve(self, request: AgentRequest) -> LocalResponse | ResponseSent:
        """Answers one request. Whatever is refused has been recorded."""
        if request.fault is None and request.method == "CONNECT":
            return await self._connect.serve(request)
        try:
            guarded = self._found(request)
        except Refused as refused:
            return await self._outside.refuse(request, refused)
        return await guarded.gate.serve(request)

    def _found(self, request: AgentRequest) -> SourceEndpoint:
        outside = self._outside
        head = outside.read(request)
        who = outside.who(head)
        try:
            scheme, where, rest = absolute(request.target)
            check_host(head, where, DEFAULT_PORTS[scheme])
            target = canonical(rest)
        except Malformed as error:
            raise outside.unreadable(error.message) from error
        group = self._places.names.at(where)
        found = None if group is None else _spoken(group, scheme).find(target)
        if found is None:
            reason = "no source of the configuration has this address and path"
            raise outside.unknown(reason, who, place_of(scheme, where))
        request.target = found.target
        return self._places.guarded[found.source.alias]


def _spoken(group: SourceGroup, scheme: str) -> SourceGroup:
    """Of these sources those that speak HTTP, and no less safely than was asked for."""
    return SourceGroup(
        tuple(
            row
            for row in group.rows
            if upstream_parts(row.source.upstream).scheme in ("https", scheme)
        )
    )
