"""Which row of S3's table a request is: told by its method, by what its path names, and by the
names of the parameters of its query, all of them. Knows no operation."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sidecar.http.request_target import Target
from sidecar.protocols.protocol import Class, Match, Route
from sidecar.protocols.shared.aws_query import parameters

_PATTERNS = {"service": "/", "bucket": "/{bucket}", "object": "/{bucket}/{key}"}


class Row(NamedTuple):
    """A route; what a path names (`service`, `bucket`, `object`) and the parameters that a query
    states for a request to be its own: all of `marks`, and none but those of `stated`."""

    route: Route
    level: str
    marks: frozenset[str]
    stated: frozenset[str]


def row(methods: str, level: str, marks: str, may: str, class_: Class, **more: Any) -> Row:
    """`marks` and `may` are names with spaces between; `more` as for a `Route`."""
    query = "&".join(marks.split())
    pattern = _PATTERNS[level] + (f"?{query}" if query else "")
    # Clients name the operation in `x-id`; S3 does not read it.
    stated = frozenset((*marks.split(), *may.split(), "x-id"))
    return Row(Route(methods, pattern, class_, **more), level, frozenset(marks.split()), stated)


class Rows:
    """A table; the first row that matches wins."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[tuple[str, str], list[Row]] = {}
        for each in rows:
            for method in each.route.methods.split():
                self._rows.setdefault((method, each.level), []).append(each)

    def match(self, method: str, target: Target) -> Match | None:
        """Its values are the bucket and the key, "" where the path names none. Raises `Malformed`
        for a query that can be read in two ways."""
        bucket, *rest = target.segments
        key = "/".join(rest)
        level = "object" if key else "bucket" if bucket else "service"
        stated = frozenset(parameters(target.query))
        for each in self._rows.get((method, level), ()):
            if each.marks <= stated <= each.stated:
                return Match(each.route, (bucket, key))
        return None
