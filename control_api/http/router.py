"""Which route a method and a path mean. Knows the table's form and nothing of authentication.

A path is matched by its decoded segments, literals before parameters, so that `%2F` in an
identifier never becomes a separator.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from control_api.http.call import segments
from control_api.http.route import RequestParser, Route
from policies.ground.errors import MethodNotAllowed, NotFound


class Compiled(NamedTuple):
    """A route made ready: its reader, its scopes, and its name for metrics."""

    route: Route
    read: RequestParser
    name: str


@dataclass(slots=True)
class _Resource:
    """The routes of one path."""

    parts: tuple[str, ...]
    methods: dict[str, Compiled] = field(default_factory=dict)

    @property
    def shares(self) -> bool:
        return any(each.route.shares for each in self.methods.values())

    def match(self, given: list[str]) -> dict[str, str] | None:
        found: dict[str, str] = {}
        for part, text in zip(self.parts, given, strict=True):
            if part.startswith("{"):
                if not text:
                    return None
                found[part[1:-1]] = text
            elif part != text:
                return None
        return found


class NoSuchMethod(MethodNotAllowed):
    """the path has no such method"""

    def __init__(self, allowed: Iterable[str]) -> None:
        self.headers = {"Allow": ", ".join(sorted(allowed))}
        super().__init__(f"the path has only {self.headers['Allow']}")


class Router:
    """The table, by path. `find` costs one look for a path without parameters."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[tuple[str, str], Compiled] = {}
        by_path: dict[str, _Resource] = {}
        for route in routes:
            resource = by_path.setdefault(route.path, _Resource(route.parts))
            compiled = Compiled(route, RequestParser(route), route.name)
            resource.methods[route.method] = compiled
            if not route.parameters:
                self._exact[route.method, route.path] = compiled
        self._by_length: dict[int, list[_Resource]] = {}
        for resource in sorted(by_path.values(), key=lambda each: _parameters(each.parts)):
            self._by_length.setdefault(len(resource.parts), []).append(resource)

    def exact(self, method: str, path: str) -> Compiled | None:
        """The route whose path is written exactly so, without parameters."""
        return self._exact.get((method, path))

    def find(self, method: str, path: str) -> tuple[Compiled, dict[str, str]]:
        """The route and its path parameters; `NotFound`, or `MethodNotAllowed` naming what is."""
        given = segments(path)
        others: set[str] = set()
        for resource in self._by_length.get(len(given), ()):
            found = resource.match(given)
            if found is not None:
                # HEAD is GET whose body stays behind (RFC 9110, 9.3.2).
                compiled = resource.methods.get("GET" if method == "HEAD" else method)
                if compiled is not None:
                    return compiled, found
                others |= _methods(resource)
                if not resource.shares:
                    break
        if others:
            raise NoSuchMethod(others)
        raise NotFound("no such path")


def _parameters(parts: tuple[str, ...]) -> int:
    return sum(part.startswith("{") for part in parts)


def _methods(resource: _Resource) -> set[str]:
    return {*resource.methods, *({"HEAD"} if "GET" in resource.methods else ())}
