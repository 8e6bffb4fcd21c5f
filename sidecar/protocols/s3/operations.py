"""Which row of S3's table a request is: told by its method, by what its path names, and by the
names of the parameters of its query, all of them. Knows no operation."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sidecar.http.request_target import Target
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch
from sidecar.protocols.shared.aws_query import parse_query

_PATTERNS = {"service": "/", "bucket": "/{bucket}", "object": "/{bucket}/{key}"}


class S3Operation(NamedTuple):
    """A route; what a path names (`service`, `bucket`, `object`) and the parameters that a query
    states for a request to be its own: all of `marks`, and none but those of `stated`."""

    route: ProtocolRoute
    level: str
    marks: frozenset[str]
    stated: frozenset[str]


def row(
    methods: str, level: str, marks: str, may: str, class_: RouteClass, **more: Any
) -> S3Operation:
    """`marks` and `may` are names with spaces between; `more` as for a `ProtocolRoute`."""
    query = "&".join(marks.split())
    pattern = _PATTERNS[level] + (f"?{query}" if query else "")
    # Clients name the operation in `x-id`; S3 does not read it.
    stated = frozenset((*marks.split(), *may.split(), "x-id"))
    return S3Operation(
        ProtocolRoute(methods, pattern, class_, **more), level, frozenset(marks.split()), stated
    )


class S3Operations:
    """A table; the first row that matches wins."""

    def __init__(self, rows: Iterable[S3Operation]) -> None:
        self._rows: dict[tuple[str, str], list[S3Operation]] = {}
        for each in rows:
            for method in each.route.methods.split():
                self._rows.setdefault((method, each.level), []).append(each)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        """Its values are the bucket and the key, "" where the path names none. Raises `Malformed`
        for a query that can be read in two ways."""
        bucket, *rest = target.segments
        key = "/".join(rest)
        level = "object" if key else "bucket" if bucket else "service"
        stated = frozenset(parse_query(target.query))
        for each in self._rows.get((method, level), ()):
            if each.marks <= stated <= each.stated:
                return RouteMatch(each.route, (bucket, key))
        return None
