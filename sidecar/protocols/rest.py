"""The protocols of the kinds `rest` and `tcp`.

`rest` is any HTTP interface: the path is the source (`CONTRACT.md`, Proxied requests). GET and HEAD
retrieve, other methods write; the operator's `routes` override that, and the first match wins.

`tcp` is any TCP protocol, passed through unread: each connection is decided once, as a read of the
whole source (`sidecar/proxy/pipeline/passthrough.py`). No route covers an HTTP request to it.
"""

from collections.abc import Callable

from sidecar.http.request_target import Target
from sidecar.protocols.protocol import (
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    RouteMatch,
    SourceProtocol,
    SourceRef,
    Sources,
    without_waiting,
)
from sidecar.protocols.shared.source_names import NAME, PathPattern, SourceNames
from sidecar.settings.model import RestRule as ConfiguredRoute
from sidecar.settings.model import Source


class Rest(SourceProtocol):
    def __init__(self, source: Source, _monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._rules = [_Rule(route, self._naming) for route in source.routes]

    def match(self, method: str, target: Target) -> RouteMatch | None:
        # Match without the query: a configured path says nothing about parameters.
        path = target.path
        for rule in self._rules:
            covers = method in rule.methods or "*" in rule.methods
            if covers and (values := rule.pattern.match(path)) is not None:
                return RouteMatch(rule.route, values)
        # An unknown method may change something, so it counts as a write.
        return _READ if method in ("GET", "HEAD") else _WRITE

    def source(self, request: RoutedRequest) -> SourceRef:
        return self._naming.of_path(request.target.path)


class _Rule:
    """One configured route: the methods and paths that it covers, and the source that they stand
    for."""

    def __init__(self, route: ConfiguredRoute, naming: SourceNames) -> None:
        # A rule for GET covers HEAD too: an agent that may not read must not see the headers.
        self.methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        self.pattern = PathPattern(route.path)
        self._source_id = route.source_id
        self._level = route.sensitivity
        self._naming = naming
        self.route = _route(route.method, route.path, RouteClass(route.class_), self._source)

    def _source(self, _rest: Rest, request: RoutedRequest) -> SourceRef:
        if self._source_id is None:
            return self._naming.of_path(request.target.path, self._level)
        # Values are in the escaped form of the path, so that none of them can add a `/`.
        values = dict(zip(self.pattern.names, request.path_params, strict=True))
        source_id = NAME.sub(lambda name: values[name[1]], self._source_id)
        return self._naming.named(source_id, self._level)


def _route(
    methods: str, path: str, class_: RouteClass, source: Callable[[Rest, RoutedRequest], SourceRef]
) -> ProtocolRoute:
    def find(rest: Rest, request: RoutedRequest) -> Sources:
        return (source(rest, request),)

    found = without_waiting(find)
    return ProtocolRoute(methods, path, class_, found, source, find_sources_now=find)


_READ = RouteMatch(_route("GET HEAD", "/**", RouteClass.RETRIEVE, Rest.source), ())
_WRITE = RouteMatch(_route("*", "/**", RouteClass.WRITE, Rest.source), ())


class Unread(SourceProtocol):
    def __init__(self, _source: Source, _monotonic: Callable[[], float]) -> None:
        super().__init__()

    # Called only for stray HTTP: a connection is decided before it could get here.
    def match(self, _method: str, _target: Target) -> RouteMatch | None:
        return None
