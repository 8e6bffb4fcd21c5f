"""Every route × every kind of key × own, foreign and absent objects: the status is the one in the
table of `expected`, and another tenant's object looks absent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from control_api.edge.route import Route
from control_api.routes import ROUTES
from policies.ground.keys import make_key
from tests.control_api.edge.expected import (
    CREATES,
    EXPECTED,
    NAMED_IN_BODY,
    PERSONAL,
    SCOPES,
    Expected,
)
from tests.control_api.edge.world import MAKERS, Tenant, absent_like, body_of, object_kind, path_of
from tests.runner import tiers
from tests.support.control_api import SUPERADMIN, Answer, ControlApi, running_control_api

GUARDED = [route for route in ROUTES if route.scopes is not None]
OPEN_PATHS = {"/health", "/health/ready", "/metrics", "/openapi.json", "/docs", "/"}
# Its body holds a token instead of a key.
OPEN_PATHS |= {"/v1/sidecars/enrol"}
OBJECTS = [
    route for route in GUARDED if object_kind(route) and (route.method, route.path) not in CREATES
]
# The superadmin's objects are tenants, which belong to no tenant.
OWNED = [route for route in OBJECTS if object_kind(route) != "tenant_id"]
WITH_BODY = [route for route in GUARDED if route.has_body]


def ids(route: Route) -> str:
    return f"{route.method} {route.path}"


def expected(route: Route) -> Expected:
    return EXPECTED[route.method, route.path]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("walk")) as started:
        yield started


@pytest.fixture(scope="module")
def dead(api: ControlApi) -> dict[str, str]:
    """Admin keys that no longer work, one for each reason."""
    doomed = Tenant.made(api, "doomed")
    revoked = doomed.post("/v1/keys", {"name": "revoked", "scope": "admin"})
    revoke = f"/v1/keys/{revoked['key_id']}"
    assert api.call("DELETE", revoke, key=doomed.keys["admin"]).status == 200
    rotated = doomed.post("/v1/keys", {"name": "rotated", "scope": "admin"})
    doomed.post(f"/v1/keys/{rotated['key_id']}/rotate", None)
    api.time.ahead -= 2 * 86_400
    short = {"name": "expired", "scope": "admin", "expires_days": 1}
    expired = doomed.post("/v1/keys", short)
    api.time.ahead += 2 * 86_400
    off = Tenant.made(api, "off")
    deactivated = f"/v1/admin/tenants/{off.tenant_id}"
    assert api.call("DELETE", deactivated, key=SUPERADMIN).status == 200
    return {
        "unknown": make_key(b"u" * 32),
        "no key of ours": "nonsense",
        "revoked": revoked["key"],
        "rotated": rotated["key"],
        "expired": expired["key"],
        "deactivated": off.keys["admin"],
    }


def object_for(route: Route, tenant: Tenant) -> str:
    kind = object_kind(route)
    return MAKERS[kind](tenant) if kind else ""


def test_the_table_of_expectation_has_every_route() -> None:
    assert {(route.method, route.path) for route in GUARDED} == EXPECTED.keys()
    assert {route.path for route in ROUTES if route.scopes is None} == OPEN_PATHS
    assert {kind for route in OBJECTS if (kind := object_kind(route))} <= MAKERS.keys()
    assert NAMED_IN_BODY.keys() <= EXPECTED.keys()


CHANGES_NOTHING = (
    "/v1/context/simulate", "/v1/policies/diff", "/v1/policies/review", "/v1/audit/verification",
)  # fmt: skip
"""Questions with a body, and the verification, which only reads."""


def test_the_table_agrees_with_the_contract() -> None:
    for (method, path), (may, _) in EXPECTED.items():
        # An evaluate key sees nothing: no GET.
        assert method == "POST" or "evaluate" not in may, path
        # An admin may do everything in its tenant; the superadmin its own paths alone.
        console = path.startswith("/v1/console/")
        assert ("superadmin" in may) == (path.startswith("/v1/admin/") or console), path
        assert console or ("admin" in may) != ("superadmin" in may), path
        assert "sidecar" not in may or path.startswith("/v1/sidecars/"), path
        assert "read" not in may or method == "GET" or path in CHANGES_NOTHING or console, path


@tiers.sampled("route", "scope")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_own_objects_are_reached_by_exactly_the_expected_scopes(
    ours: Tenant, route: Route, scope: str
) -> None:
    answer = ours.call(route, scope, object_for(route, ours))
    allowed = scope in expected(route).may
    own = (
        404 if (route.method, route.path) in PERSONAL and scope != "admin" else expected(route).own
    )
    assert answer.status == (own if allowed else 403), answer.raw


@tiers.sampled("route", "scope")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("route", OBJECTS, ids=ids)
def test_absent_objects_are_not_found_by_scopes_that_may_look(
    ours: Tenant, route: Route, scope: str
) -> None:
    absent = absent_like(object_for(route, ours))
    answer = ours.call(route, scope, absent)
    assert answer.status == (404 if scope in expected(route).may else 403), answer.raw


@tiers.sampled("route", "scope")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("route", OWNED, ids=ids)
def test_another_tenant_s_object_is_answered_like_an_absent_one(
    ours: Tenant, theirs: Tenant, route: Route, scope: str
) -> None:
    foreign = object_for(route, theirs)
    absent = absent_like(foreign)
    assert len(absent) == len(foreign)
    assert absent != foreign
    one, other = (ours.call(route, scope, each) for each in (foreign, absent))
    assert one.status == (404 if scope in expected(route).may else 403)
    assert told(one, foreign) == told(other, absent)
    # The object still exists for its owner, unchanged.
    unchanged = theirs.call(route, "admin", foreign)
    assert unchanged.status == expected(route).own, unchanged.raw


def told(answer: Answer, object_id: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """All that a caller sees, except the id it sent, the request id and the time."""
    passing = {"x-request-id", "date"}
    headers = [pair for pair in answer.headers.items() if pair[0].lower() not in passing]
    return answer.status, headers, answer.raw.replace(object_id.encode(), b"<id>")


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_no_key_is_401_whatever_the_request(ours: Tenant, route: Route) -> None:
    for object_id in (object_for(route, ours), "absent"):
        path = path_of(route, object_id)
        for body in (body_of(route, object_id), {"not": "known"}):
            assert ours.api.call(route.method, path, body, key=None).status == 401


@tiers.sampled("route", "why")
@pytest.mark.parametrize(
    "why", ["unknown", "no key of ours", "revoked", "rotated", "expired", "deactivated"]
)
@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_dead_key_is_403_whatever_the_request(
    ours: Tenant, dead: dict[str, str], route: Route, why: str
) -> None:
    object_id = object_for(route, ours)
    path, body = path_of(route, object_id), body_of(route, object_id)
    answer = ours.api.call(route.method, path, body, key=dead[why])
    assert answer.status == 403, answer.raw
    assert answer.body["error"] == "Forbidden"


@pytest.mark.deep(stands_in="test_a_dead_key_is_403_whatever_the_request")
def test_an_expired_key_is_403_on_every_route(api: ControlApi) -> None:
    tenant = Tenant.made(api, "expiring")
    key = tenant.post("/v1/keys", {"name": "short", "scope": "admin", "expires_days": 1})["key"]
    objects = {route: object_for(route, tenant) for route in GUARDED}
    assert api.call("GET", "/v1/keys", key=key).status == 200
    api.time.ahead += 86_400
    try:
        for route, object_id in objects.items():
            path, body = path_of(route, object_id), body_of(route, object_id)
            assert api.call(route.method, path, body, key=key).status == 403, ids(route)
    finally:
        api.time.ahead -= 86_400


@tiers.sampled("route", "scope", "raw")
@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"not": "known"}', b"\xff"], ids=range(4))
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("route", WITH_BODY, ids=ids)
def test_the_scope_is_judged_before_the_body(
    ours: Tenant, route: Route, scope: str, raw: bytes
) -> None:
    if scope not in expected(route).may:
        path = path_of(route, "absent")
        assert ours.api.call(route.method, path, raw=raw, key=ours.keys[scope]).status == 403


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_query_that_is_not_known_is_judged_after_the_scope(ours: Tenant, route: Route) -> None:
    path = path_of(route, "absent").partition("?")[0] + "?colour=blue&limit=none"
    for scope in set(SCOPES) - expected(route).may:
        answer = ours.api.call(route.method, path, key=ours.keys[scope])
        assert answer.status == 403, (scope, answer.raw)


SHARED = {"/v1/sessions/revoke"}
"""Routes whose last segment may also be an object's id: callers choose the ids of sessions."""
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND")


@pytest.mark.parametrize("path", sorted({route.path for route in GUARDED}))
def test_an_unsupported_method_is_405_after_the_key(
    ours: Tenant, dead: dict[str, str], path: str
) -> None:
    has = {route.method for route in ROUTES if route.path == path}
    target = path.replace("{", "").replace("}", "")
    # Another path may have the same form: `reload` is not a policy's id.
    alike = {r.method for r in ROUTES if r.path != path and same_form(r.path, target)}
    for method in sorted(set(METHODS) - has - alike):
        assert ours.api.call(method, target, key=None).status == 401
        assert ours.api.call(method, target, key=dead["revoked"]).status == 403
        for scope in SCOPES:
            answer = ours.api.call(method, target, key=ours.keys[scope])
            assert answer.status == 405, (method, answer.raw)
            shared = {*has, *(alike if path in SHARED else ())}
            allowed = {*shared, *({"HEAD"} if "GET" in shared else ())}
            assert set(answer.headers["Allow"].split(", ")) == allowed


def same_form(path: str, target: str) -> bool:
    pairs = list(zip(path.split("/"), target.split("/"), strict=False))
    return path.count("/") == target.count("/") and all(
        part.startswith("{") or part == text for part, text in pairs
    )


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/keys/a/b/c", "/v1/admin"])
def test_an_unknown_path_is_401_without_a_key_and_404_with_one(
    ours: Tenant, dead: dict[str, str], path: str
) -> None:
    for method in METHODS:
        assert ours.api.call(method, path, key=None).status == 401
        assert ours.api.call(method, path, key=dead["deactivated"]).status == 403
        for scope in SCOPES:
            assert ours.api.call(method, path, key=ours.keys[scope]).status == 404


@pytest.mark.deep(stands_in="test_a_dead_key_is_403_whatever_the_request")
def test_the_old_key_of_a_rotation_is_refused(ours: Tenant) -> None:
    made = ours.post("/v1/keys", {"name": "turning", "scope": "read"})
    turned = ours.post(f"/v1/keys/{made['key_id']}/rotate", None)
    call = ours.api.call
    assert call("GET", "/v1/keys", key=made["key"]).status == 403
    assert call("GET", "/v1/keys", key=turned["key"]).status == 200
