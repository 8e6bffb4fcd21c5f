"""Matches a request to a row of S3's table: by its method, by what its path names, and by the names
of all its query parameters. Knows no particular operation."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from sidecar.http.request_target import Target
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch
from sidecar.protocols.shared.aws_query import parse_query

S3Resource = Literal["service", "bucket", "object"]
"""What the path of a request names."""

_PATTERNS: dict[S3Resource, str] = {
    "service": "/",
    "bucket": "/{bucket}",
    "object": "/{bucket}/{key}",
}


class S3Operation(NamedTuple):
    """A route, and the requests that it matches: by what their path names, and by the parameters
    of their query."""

    route: ProtocolRoute
    resource: S3Resource
    required: frozenset[str]
    allowed: frozenset[str]
    """Includes `required`."""


def operation(
    methods: str,
    resource: S3Resource,
    required: str,
    optional: str,
    route_class: RouteClass,
    **more: Any,
) -> S3Operation:
    """`required` and `optional` are parameters separated by spaces; `more` is passed to
    `ProtocolRoute`."""
    needed = required.split()
    pattern = _PATTERNS[resource] + ("?" + "&".join(needed) if needed else "")
    route = ProtocolRoute(methods, pattern, route_class, **more)
    # Clients name the operation in `x-id`, which S3 ignores.
    allowed = frozenset((*needed, *optional.split(), "x-id"))
    return S3Operation(route, resource, frozenset(needed), allowed)


class S3Operations:
    """A table of operations. The first match wins."""

    def __init__(self, rows: Iterable[S3Operation]) -> None:
        self._rows: dict[tuple[str, S3Resource], list[S3Operation]] = {}
        for each in rows:
            for method in each.route.methods.split():
                self._rows.setdefault((method, each.resource), []).append(each)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        """The matching row, with the bucket and the key as path parameters; "" for one that the
        path does not name. Raises `Malformed` for an ambiguous query."""
        bucket, *rest = target.segments
        # A trailing slash is part of a key (`reports/`), but `/lake/` is the bucket.
        key = "/".join(rest)
        resource: S3Resource = "object" if key else "bucket" if bucket else "service"
        parameters = frozenset(parse_query(target.query))
        for each in self._rows.get((method, resource), ()):
            # INVARIANT: the row knows every parameter. S3 may act on one that the row doesn't know,
            # and the request would then be another operation.
            if each.required <= parameters <= each.allowed:
                return RouteMatch(each.route, (bucket, key))
        return None
