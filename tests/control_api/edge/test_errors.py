"""Whatever goes wrong, on any path: one error body, the same headers, and no internals in it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from control_api.edge.route import Route
from control_api.routes import ROUTES
from policies.ground.errors import SluiceError, Unavailable
from tests.control_api.edge.expected import EXPECTED
from tests.control_api.edge.world import MAKERS, Tenant, body_of, object_kind, path_of
from tests.runner import tiers
from tests.support.control_api import SUPERADMIN, Answer, ControlApi, running_control_api

GUARDED = [route for route in ROUTES if route.scopes is not None]
SECRET = "a secret of ours: /somewhere/else"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("errors")) as started:
        yield started


@pytest.fixture(scope="module")
def tenant(api: ControlApi) -> Tenant:
    return Tenant.made(api, "erring")


def ids(route: Route) -> str:
    return f"{route.method} {route.path}"


def is_error(status: int, headers: Any, body: Any, code: int) -> None:
    """Check the one shape of an error (`CONTRACT.md`, Errors)."""
    assert status == code, body
    assert set(body) <= {"error", "message", "code", "details"}
    assert body["code"] == code
    assert body["error"] == HTTPStatus(code).phrase
    assert isinstance(body["message"], str)
    assert body["message"]
    assert isinstance(body.get("details", ""), str)
    assert headers["Content-Type"] == "application/json"
    assert headers["Server"] == "sluice"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Request-ID"]
    assert "Access-Control-Allow-Origin" not in headers


def check(answer: Answer, code: int) -> None:
    is_error(answer.status, answer.headers, answer.body, code)


def called(tenant: Tenant, route: Route, key: str | None, **more: Any) -> Answer:
    path, body = path_of(route, "absent"), body_of(route, "absent")
    return tenant.api.call(route.method, path, body, key=key, **more)


def admitted(tenant: Tenant, route: Route) -> str:
    assert route.scopes is not None
    # Where both may, the object is a tenant's.
    return tenant.keys["admin" if "admin" in route.scopes else "superadmin"]


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_every_refusal_has_the_same_form(tenant: Tenant, route: Route) -> None:
    check(called(tenant, route, None), 401)
    check(called(tenant, route, "no key of ours"), 403)
    wrong = next(scope for scope in tenant.keys if scope not in (route.scopes or ()))
    check(called(tenant, route, tenant.keys[wrong]), 403)
    check(tenant.api.call("PROPFIND", route.path, key=tenant.keys["read"]), 405)


@tiers.rotating(0, 3)
@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_bug_is_500_and_shows_only_the_request_s_id(
    tenant: Tenant, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = object_kind(route)
    object_id = MAKERS[kind](tenant) if kind else ""

    tenant.prepare(route, object_id)

    def broken(*_: object) -> None:
        raise RuntimeError(SECRET)

    # Fails in the last step of every operation, after it has its result.
    monkeypatch.setattr("control_api.edge.pipeline.render_result", broken)
    headers = {"X-Request-ID": "find-me"}
    path, body = path_of(route, object_id), body_of(route, object_id)
    key = admitted(tenant, route)
    answer = tenant.api.call(route.method, path, body, key=key, headers=headers)
    # If the operation itself refuses, there is nothing to render.
    own = EXPECTED[route.method, route.path].own
    check(answer, 500 if own < 400 else own)
    assert ("find-me" in answer.body["message"]) == (answer.status == 500)
    assert "details" not in answer.body
    assert b"secret" not in answer.raw
    assert b"Traceback" not in answer.raw


@pytest.mark.parametrize("route", ROUTES, ids=ids)
def test_no_response_may_be_cached_or_names_a_version(tenant: Tenant, route: Route) -> None:
    answer = called(tenant, route, admitted(tenant, route) if route.scopes else None)
    assert answer.headers.get_all("Server") == ["sluice"]
    assert answer.headers.get_all("Cache-Control") == ["no-store"]
    assert answer.headers.get_all("X-Request-ID")
    assert answer.headers.get_all("X-Content-Type-Options") == ["nosniff"]


def test_an_unreachable_store_is_answered_with_503_and_retry_after(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise Unavailable

    monkeypatch.setattr("control_api.store.store.Store.reading", gone)
    answer = tenant.api.call("GET", "/v1/agents", key=tenant.keys["read"])
    check(answer, 503)
    assert answer.headers["Retry-After"] == "1"


RAW = [
    (b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", 400),
    (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 1000 + b"Bad\r\n\r\n", 400),
    (b"\x00\x01\x02\r\n\r\n", 400),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\n\r\n", 401),
    (b"GET /v1/keys HTTP/1.0\r\n\r\n", 401),
    (b"GET http://elsewhere/v1/keys HTTP/1.1\r\nHost: x\r\n\r\n", 401),
    (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX_API_Key: %KEY%\r\n\r\n", 401),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key : %KEY%\r\n\r\n", 400),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\n X-API-Key: %KEY%\r\n\r\n", 400),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: %KEY%\r\nX-API-Key: %KEY%\r\n\r\n", 403),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: a\r\nx-api-key: %KEY%\r\n\r\n", 403),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: %KEY%\r\nX-API-Key:\r\n\r\n", 403),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: %KEY%, %KEY%\r\n\r\n", 403),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key:\r\n\r\n", 401),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %KEY%\r\n\r\n", 401),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: %KEY%\r\n\r\n", 401),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n\r\n", 401),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a %KEY%\r\n\r\n", 403),
    (
        b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: %KEY%\r\nAuthorization: Bearer a\r\n\r\n",
        401,
    ),
    (
        b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: a\r\nAuthorization: bearer %KEY%\r\n\r\n",
        401,
    ),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: %KEY%\r\nAuthorization: Bearer\r\n\r\n", 401),
    (b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nCookie: X-API-Key=%KEY%\r\n\r\n", 401),
]


@pytest.mark.parametrize(("sent", "code"), RAW, ids=range(len(RAW)))
def test_requests_broken_at_the_byte_level_get_the_same_form(
    tenant: Tenant, sent: bytes, code: int
) -> None:
    sent = sent.replace(b"%KEY%", tenant.keys["admin"].encode())
    with socket.create_connection(("127.0.0.1", tenant.api.port), timeout=10) as connection:
        connection.sendall(sent)
        received = b""
        while b'"code":' not in received and (chunk := connection.recv(65536)):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    is_error(int(lines[0].split(" ")[1]), headers, json.loads(body), code)
    assert tenant.keys["admin"].encode() not in received


@pytest.mark.parametrize("name", ["X-API-Key", "x-api-key", "api_key", "key", "apikey", "token"])
def test_a_key_in_the_query_does_not_count(tenant: Tenant, name: str) -> None:
    key = tenant.keys["admin"]
    for path in ("/v1/keys", "/v1/policies", "/v1/nothing"):
        answer = tenant.api.call("GET", f"{path}?{name}={key}", key=None)
        check(answer, 401)
        assert key not in str(answer)


BEARER = ["Bearer {}", "bearer {}", "BEARER {}", "Bearer   {}"]


@pytest.mark.parametrize("form", BEARER)
def test_a_bearer_token_is_a_key_like_any_other(tenant: Tenant, form: str) -> None:
    call, key, other = tenant.api.call, tenant.keys["admin"], tenant.keys["evaluate"]
    sent = {"Authorization": form.format(key)}
    for headers in (sent, sent | {"X-API-Key": key}):
        assert call("GET", "/v1/keys", key=None, headers=headers).status == 200
        assert call("GET", "/v1/keys/absent", key=None, headers=headers).status == 404
    # The superadmin's has another form than those that the service makes.
    operators = {"Authorization": form.format(SUPERADMIN)}
    assert call("GET", "/v1/admin/tenants", key=None, headers=operators).status == 200
    wrong = {"Authorization": form.format(other)}
    assert call("GET", "/v1/keys", key=None, headers=wrong).status == 403
    refused = call("GET", "/v1/keys", key=None, headers=sent | {"X-API-Key": other})
    check(refused, 401)
    assert "different keys" in refused.body["message"]
    assert key not in str(refused.raw)


@pytest.mark.deep(stands_in="test_a_bearer_token_is_a_key_like_any_other")
@pytest.mark.parametrize("form", BEARER)
def test_a_bearer_token_is_the_key_on_every_guarded_route(tenant: Tenant, form: str) -> None:
    api = tenant.api
    for route in ROUTES:
        if route.scopes is None:
            continue
        path = "/".join("absent" if part[:1] == "{" else part for part in route.path.split("/"))
        superadmin = "superadmin" in route.scopes
        key = SUPERADMIN if superadmin else tenant.keys["admin"]
        # Some routes take the superadmin and admins.
        other = next(tenant.keys[scope] for scope in tenant.keys if scope not in route.scopes)
        sent = {"Authorization": form.format(key)}
        for headers in (sent, sent | {"X-API-Key": key}):
            # The key and scope are right, so the error is in the body or the query.
            told = api.call(route.method, f"{path}?colour=red", raw=b"{", key=None, headers=headers)
            assert told.status not in (401, 403), (route.path, told.raw)
        wrong = {"Authorization": form.format(other)}
        assert api.call(route.method, path, raw=b"{", key=None, headers=wrong).status == 403
        both = sent | {"X-API-Key": other}
        refused = api.call(route.method, path, raw=b"{", key=None, headers=both)
        check(refused, 401)
        assert "different keys" in refused.body["message"]
        assert key not in str(refused.raw)


def test_another_scheme_beside_a_key_is_ignored(tenant: Tenant) -> None:
    basic = {"Authorization": "Basic YTpi"}
    assert tenant.api.call("GET", "/v1/keys", key=tenant.keys["read"], headers=basic).status == 200


def test_a_request_with_two_different_keys_is_counted(tenant: Tenant) -> None:
    api = tenant.api
    api.call("GET", "/v1/keys", key=tenant.keys["read"], headers={"Authorization": "Bearer x"})
    shown = api.call("GET", "/metrics", key=None).raw.decode()
    assert 'sluice_refusals_total{reason="differ"}' in shown


def every(kind: type[SluiceError]) -> Iterator[type[SluiceError]]:
    for each in kind.__subclasses__():
        yield each
        yield from every(each)


def test_every_error_has_a_status_with_a_phrase_and_a_description() -> None:
    family = list(every(SluiceError))
    assert len(family) > 10
    for kind in family:
        assert HTTPStatus(kind.status).phrase
        assert kind.__doc__
        assert kind.__doc__[0].islower(), kind
