"""The table of Weaviate's routes."""

import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import RouteClass
from sidecar.protocols.weaviate.routes import ROUTES, Weaviate
from tests.sidecar.protocols.weaviate.front import ID
from tests.support.proxy import CLOCK, source


def test_every_reading_route_finds_its_sources() -> None:
    lists = ("/v1/schema", "/v1/aliases", "/v1/nodes")
    for route in ROUTES:
        if route.route_class in (RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE):
            assert route.find_sources or route.pattern.rstrip("/") in lists or route.refine, (
                route.pattern
            )
        if route.filters_documents:
            assert route.plan_forward is not None, route.pattern


@pytest.mark.parametrize(
    ("method", "path", "class_"),
    [
        ("POST", "/v1/objects/validate", RouteClass.METADATA),
        ("POST", "/v1/graphql/batch", RouteClass.RETRIEVE),
        ("DELETE", "/v1/batch/objects", RouteClass.WRITE),
        ("HEAD", f"/v1/objects/A/{ID}", RouteClass.RETRIEVE),
        ("DELETE", "/v1/aliases/a", RouteClass.ADMIN),
        ("POST", "/v1/backups/s3/b/restore", RouteClass.BULK),
    ],
)
def test_each_route_has_its_class(method: str, path: str, class_: RouteClass) -> None:
    match = Weaviate(source(1, "weaviate"), CLOCK.monotonic).match(method, canonical(path))
    assert match is not None
    assert match.route.route_class is class_
