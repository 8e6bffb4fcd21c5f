"""Finds the route for a method and a path. Decoded path segments are compared, and a literal
segment takes precedence over a parameter. Also finds the object that an operation works with, by
the type of its first parameter."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from control_api.edge.route import Operation, RequestParser, Route, bundle_type, path_segments
from policies.ground.errors import MethodNotAllowed, NotFound


class CompiledRoute(NamedTuple):
    """A route with its parser and its name for metrics, both made once."""

    route: Route
    parse: RequestParser
    name: str


@dataclass(slots=True)
class _Resource:
    """The routes of one path, by method. `parts` are the path's segments."""

    parts: tuple[str, ...]
    methods: dict[str, CompiledRoute] = field(default_factory=dict)

    @property
    def falls_through(self) -> bool:
        return any(each.route.falls_through for each in self.methods.values())

    @property
    def allowed(self) -> set[str]:
        return {*self.methods, *({"HEAD"} if "GET" in self.methods else ())}

    @property
    def parameter_count(self) -> int:
        return sum(part.startswith("{") for part in self.parts)

    def match(self, given: list[str]) -> dict[str, str] | None:
        found: dict[str, str] = {}
        for part, text in zip(self.parts, given, strict=True):
            if part.startswith("{"):
                if not text:
                    return None  # `/v1/keys/` names no key
                found[part[1:-1]] = text
            elif part != text:
                return None
        return found


class NoSuchMethod(MethodNotAllowed):
    """the path does not support this method"""

    def __init__(self, allowed: Iterable[str]) -> None:
        self.headers = {"Allow": ", ".join(sorted(allowed))}
        super().__init__(f"the path supports only {self.headers['Allow']}")


class Router:
    """Holds the routes by path. A route without path parameters is found with one dictionary
    look-up (`exact`)."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[tuple[str, str], CompiledRoute] = {}
        by_path: dict[str, _Resource] = {}
        for route in routes:
            resource = by_path.setdefault(route.path, _Resource(route.parts))
            compiled = CompiledRoute(route, RequestParser(route), route.name)
            resource.methods[route.method] = compiled
            if not route.parameters:
                self._exact[route.method, route.path] = compiled
        self._by_length: dict[int, list[_Resource]] = {}
        # Fewest parameters first: a literal path wins over one with a parameter.
        for resource in sorted(by_path.values(), key=lambda each: each.parameter_count):
            self._by_length.setdefault(len(resource.parts), []).append(resource)

    def exact(self, method: str, path: str) -> CompiledRoute | None:
        """Return the route without path parameters whose path equals `path`, or None."""
        return self._exact.get((method, path))

    def find(self, method: str, path: str) -> tuple[CompiledRoute, dict[str, str]]:
        """Find the route and its path parameters. Raise `NotFound` if no path matches, and
        `NoSuchMethod` if a path does but has no such method."""
        given = path_segments(path)
        allowed: set[str] = set()
        for resource in self._by_length.get(len(given), ()):
            found = resource.match(given)
            if found is not None:
                # HEAD is GET without the body (RFC 9110, section 9.3.2).
                compiled = resource.methods.get("GET" if method == "HEAD" else method)
                if compiled is not None:
                    return compiled, found
                # The path matches, but the method does not. Look further only if the last segment
                # may also be an identifier.
                allowed |= resource.allowed
                if not resource.falls_through:
                    break
        if allowed:
            raise NoSuchMethod(allowed)
        raise NotFound("no such path")


class Bundles:
    """Holds the objects that operations work with ("bundles"), one of each type."""

    def __init__(self, *bundles: object) -> None:
        self._by_type = {type(bundle): bundle for bundle in bundles}

    def of(self, operation: Operation) -> object:
        """Return the bundle that the operation takes as its first parameter. Raise `LookupError` if
        there is none of that type."""
        needed = bundle_type(operation)
        try:
            return self._by_type[needed]
        except KeyError:
            name = getattr(operation, "__name__", operation)
            known = ", ".join(f"`{each.__name__}`" for each in self._by_type)
            raise LookupError(
                f"`{name}` takes a `{needed.__name__}` first, and there are only {known}: give the "
                "assembly one"
            ) from None
