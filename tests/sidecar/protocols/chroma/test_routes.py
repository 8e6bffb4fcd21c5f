"""Chroma's routes: each is classed, and an unknown or ambiguous one is denied."""

import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.chroma.routes import ROUTES, Chroma
from sidecar.protocols.protocol import RouteClass
from tests.sidecar.protocols.chroma.front import TENANT, Front
from tests.sidecar.protocols.minimal import denied
from tests.support.proxy import CLOCK, source


async def test_every_route_of_chroma_has_a_class(front: Front) -> None:
    described = front.direct("GET", "/openapi.json")[1]["paths"]
    protocol = Chroma(source(1, "chroma"), CLOCK.monotonic)
    for path, methods in described.items():
        target = canonical(path.replace("{", "").replace("}", ""))
        for method in methods:
            match = protocol.match(method.upper(), target)
            assert match is not None, f"{method} {path}"


async def test_the_classes_match_the_specification() -> None:
    classes: dict[str, RouteClass] = {}
    for route in ROUTES:
        for method in route.methods.split():
            classes[f"{method} {route.pattern.split('/')[-1]}"] = route.route_class
    assert (
        classes["POST query"]
        == classes["POST get"]
        == classes["POST search"]
        == RouteClass.RETRIEVE
    )
    for verb in ("add", "update", "upsert", "delete"):
        assert classes[f"POST {verb}"] == RouteClass.WRITE
    for verb in ("fork", "attach", "detach"):
        assert classes[f"POST {verb}"] == RouteClass.BULK
    assert classes["POST reset"] == RouteClass.ADMIN


CLOSED = [
    ("POST", "/api/v2/reset"),
    ("POST", "/api/v2/tenants"),
    ("PATCH", f"/api/v2/tenants/{TENANT}"),
    ("GET", f"/api/v2/tenants/{TENANT}/databases"),
    ("POST", f"/api/v2/tenants/{TENANT}/databases"),
    ("DELETE", "{base}"),
    ("POST", "{one}/fork"),
    ("POST", "{one}/functions/attach"),
    ("GET", "{one}/functions/x"),
    ("POST", "{one}/attached_functions/x/detach"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_requests_that_copy_or_administer_are_denied(
    writing: Front, method: str, path: str
) -> None:
    for name in ("open_docs", "shut_docs"):
        target = path.format(base=writing.base, one=writing.one(name))
        denied(await writing.ask(method, target, {"new_name": "open_copy"}), "route_denied")
    assert writing.relay.lines == []


UNCLASSED = [
    ("GET", "/"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/metrics"),
    ("GET", "/api/v1/heartbeat"),
    ("GET", "/api/v1/collections"),
    ("GET", "/api/v3/heartbeat"),
    ("GET", "/API/v2/heartbeat"),
    ("GET", "/api/V2/heartbeat"),
    ("GET", "/api/v2/heartbeat/"),
    ("GET", "/api/v2/"),
    ("POST", "/api/v2/heartbeat"),
    ("GET", "{one}"),
    ("GET", "{names}/"),
    ("GET", "{names}/shut_docs/"),
    ("GET", "{names}/by-id/{id}/"),
    ("GET", "{one}/query"),
    ("HEAD", "{one}/query"),
    ("PUT", "{one}/query"),
    ("PATCH", "{one}/query"),
    ("OPTIONS", "{one}/query"),
    ("TRACE", "{one}/query"),
    ("POST", "{one}/Query"),
    ("POST", "{one}/query/"),
    ("POST", "{one}/QUERY"),
    ("POST", "{one}/export"),
    ("POST", "{one}"),
    ("OPTIONS", "{names}"),
]


@pytest.mark.parametrize(("method", "path"), UNCLASSED)
async def test_an_unknown_route_is_denied(writing: Front, method: str, path: str) -> None:
    target = path.format(
        one=writing.one("shut_docs"), names=writing.names, id=writing.ids["shut_docs"]
    )
    answered = await writing.ask(method, target)
    assert answered.status == 403
    [decision] = await writing.sidecar.decisions()
    # An id in the place of a name is judged as that name.
    if path == "{one}":
        assert decision[1] in ("analysts-read", "unclassified_route")
    else:
        assert decision == ("DENY", "unclassified_route", "chroma://kb")
    assert writing.relay.lines == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/v2/../v2/heartbeat",
        "//api/v2/heartbeat",
        "/api//v2/heartbeat",
        "{names}//shut_docs",
        "{names}/./shut_docs",
        "{names}/open_docs/../shut_docs",
        "{names}/open_docs/%2e%2e/shut_docs",
        "{names}/open_docs%2f..%2fshut_docs",
        "{names}/open_docs/..;/shut_docs",
        "{names}/shut_docs%00",
        "{names}/shut_docs#",
        "{names}/%2573hut_docs",
        "{one}%2fquery",
    ],
)
async def test_an_ambiguous_path_is_refused(front: Front, path: str) -> None:
    target = path.format(names=front.names, one=front.one("shut_docs"))
    denied(await front.ask("GET", target), "unreadable_request", 400)
    assert front.relay.lines == []


OPEN = [
    "/api/v2", "/api/v2/heartbeat", "/api/v2/healthcheck", "/api/v2/version",
    "/api/v2/pre-flight-checks", "/api/v2/auth/identity", f"/api/v2/tenants/{TENANT}", "{base}",
]  # fmt: skip


@pytest.mark.parametrize("path", OPEN)
async def test_requests_that_clients_need_pass_without_a_decision(front: Front, path: str) -> None:
    target = path.format(base=front.base)
    answered = await front.ask("GET", target)
    assert answered.status == 200
    assert "x-sluice-event-id" not in answered.fields
    assert front.relay.lines == [f"GET {target}"]
    assert await front.sidecar.records() == []


@pytest.mark.parametrize(
    "name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x_http_method"]
)
async def test_a_method_override_header_is_ignored(front: Front, name: str) -> None:
    denied(
        await front.ask("GET", front.one("shut_docs", "/query"), None, f"{name}: POST"),
        "unclassified_route",
    )
    await front.ask("GET", "/api/v2/heartbeat", None, f"{name}: DELETE")
    assert front.relay.lines == ["GET /api/v2/heartbeat"]


@pytest.mark.parametrize(
    "query",
    ["?collection_id={shut}", "?collection={shut}&name=shut_docs", "?tenant=x&database=y",
     "?limit=10&offset=0", "?/../../{shut}/query", "?"],
)  # fmt: skip
async def test_a_query_string_changes_no_source(front: Front, query: str) -> None:
    target = front.one("open_docs", "/get") + query.format(shut=front.ids["shut_docs"])
    answered = await front.ask("POST", target, {})
    assert b"text of shut" not in answered.raw
    assert front.relay.lines[-1] == f"POST {target}"
    assert (await front.sidecar.decisions())[-1][2] == front.source("open_docs")
