"""Any HTTP interface: what is read is the path (contract, section 5).

GET and HEAD retrieve, other methods write, and `source_id` is `rest://<alias><canonical path>`. The
operator's `routes` change that; the first that matches wins.
"""

from collections.abc import Callable

from sidecar.http.request_target import Target
from sidecar.protocols.messages import RoutedRequest, SourceRef
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch
from sidecar.protocols.shared.path_pattern import NAME, PathPattern
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import RestRule as ConfiguredRoute
from sidecar.settings.model import Source

_CLASSES = {
    "retrieve": RouteClass.RETRIEVE,
    "write": RouteClass.WRITE,
    "metadata": RouteClass.METADATA,
    "deny": RouteClass.DENY,
}


class Rest(SourceProtocol):
    """One HTTP interface, by its configured routes."""

    def __init__(self, source: Source, _monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._rules = [_Rule(route, self._naming) for route in source.routes]

    def match(self, method: str, target: Target) -> RouteMatch | None:
        path = target.path
        for rule in self._rules:
            if method in rule.methods or "*" in rule.methods:
                values = rule.pattern.match(path)
                if values is not None:
                    return RouteMatch(rule.route, values)
        return _READ if method in ("GET", "HEAD") else _WRITE

    async def of_path(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        return self.at_once(asked)

    def at_once(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        return (self._naming.of_path(asked.target.path),)

    def hint(self, asked: RoutedRequest) -> SourceRef | None:
        return self._naming.of_path(asked.target.path)


class _Rule:
    """One configured route: which paths it covers, and which source they are."""

    def __init__(self, route: ConfiguredRoute, naming: SourceNames) -> None:
        # Who may not GET may not ask for the head of the answer either.
        self.methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        self.pattern = PathPattern(route.path)
        self._source_id = route.source_id
        self._level = route.sensitivity
        self._naming = naming
        self.route = ProtocolRoute(
            route.method,
            route.path,
            _CLASSES[route.class_],
            self._places,
            self._hint,
            find_sources_now=self._at_once,
        )

    async def _places(self, _rest: Rest, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        return (self._place(asked),)

    def _at_once(self, _rest: Rest, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        return (self._place(asked),)

    def _hint(self, _rest: Rest, asked: RoutedRequest) -> SourceRef | None:
        return self._place(asked)

    def _place(self, asked: RoutedRequest) -> SourceRef:
        if self._source_id is None:
            return self._naming.of_path(asked.target.path, self._level)
        # Values stand in the form of the path, so that none of them holds a `/`.
        values = dict(zip(self.pattern.names, asked.path_params, strict=True))
        source_id = NAME.sub(lambda name: values[name[1]], self._source_id)
        return self._naming.named(source_id, self._level)


_READ = RouteMatch(
    ProtocolRoute(
        "GET HEAD",
        "/**",
        RouteClass.RETRIEVE,
        Rest.of_path,
        Rest.hint,
        find_sources_now=Rest.at_once,
    ),
    (),
)
_WRITE = RouteMatch(ProtocolRoute("*", "/**", RouteClass.WRITE, Rest.of_path, Rest.hint), ())
