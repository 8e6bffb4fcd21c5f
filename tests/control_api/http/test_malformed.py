"""Requests that can't be served: the right status and error body on every path, and nothing of them
in the log (contract, section 1)."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from control_api.http.routes import ROUTES
from control_api.json_logging import REQUEST_ID
from tests.control_api.centre import Answer, Centre, asked, running, within
from tests.control_api.http.test_scopes import BODIES, ids, path_of

WITH_BODY = [route for route in ROUTES if route.has_body]
WITH_FIELDS = [route for route in WITH_BODY if route.body]
REQUIRING = [
    route
    for route in WITH_FIELDS
    if any(route.request_type.model_fields[name].is_required() for name in route.body)
]
CLOSED = [
    route for route in WITH_FIELDS if route.request_type.model_config.get("extra") != "ignore"
]
# Not a sidecar's records: ingestion hashes their bytes again.
UNIQUE = [route for route in CLOSED if route.request_type.unique_keys]
IDENTIFIED = [route for route in ROUTES if route.parameters]
LISTS = [route for route in ROUTES if route.paged]


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Centre]:
    with running(tmp_path_factory.mktemp("malformed")) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_recorded(centre: Centre) -> Iterator[None]:
    """No request in this module adds to the log."""
    before = centre.verified()["total"]
    yield
    assert centre.verified()["total"] == before


def refused(answer: Answer, status: int) -> dict[str, Any]:
    """The error body, checked for its one shape."""
    assert answer.status == status, answer.raw
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Server"] == "sluice"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Request-ID"]
    body: dict[str, Any] = answer.body
    assert body["code"] == status
    assert set(body) <= {"error", "message", "code", "details"}
    assert all(isinstance(body[name], str) for name in body if name != "code")
    return body


NOT_JSON = [
    b"{",
    b"",
    b"nothing",
    b"[]",
    b'"text"',
    b"1",
    b"null",
    b'{"name": NaN}',
    b'{"name": Infinity}',
    b'{"name": "\\ud800"}',
    b'{"name": "\xff"}',
    b"\xef\xbb\xbf{}",
    b'{"name": 1e999}',
    b'{"name": "a",}',
    b"{'name': 'a'}",
    b'{"a": ' * 2000 + b"1" + b"}" * 2000,
]


@pytest.mark.parametrize("raw", NOT_JSON, ids=range(len(NOT_JSON)))
@pytest.mark.parametrize("route", WITH_FIELDS, ids=ids)
def test_what_is_no_json_object_is_400(centre: Centre, route: Any, raw: bytes) -> None:
    body = refused(centre.call(route.method, path_of(route), raw=raw), 400)
    assert body["error"] == "Bad Request"


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "x"],
)
@pytest.mark.parametrize("route", WITH_FIELDS, ids=ids)
def test_another_content_type_is_400(centre: Centre, route: Any, content_type: str) -> None:
    body = BODIES[route.name]
    headers = {"Content-Type": content_type}
    refused(centre.call(route.method, path_of(route), body, headers=headers), 400)


@pytest.mark.parametrize("route", UNIQUE, ids=ids)
def test_a_duplicate_key_in_a_management_write_is_400(centre: Centre, route: Any) -> None:
    name, value = next(iter(BODIES[route.name].items()))
    raw = json.dumps(BODIES[route.name])[:-1] + f', "{name}": {json.dumps(value)}}}'
    body = refused(centre.call(route.method, path_of(route), raw=raw.encode()), 400)
    assert name in body["message"]


@pytest.mark.parametrize("route", CLOSED, ids=ids)
def test_unknown_fields_in_a_write_are_422_all_at_once(centre: Centre, route: Any) -> None:
    sent = {**BODIES[route.name], "denied_surces": [], "another": 1}
    body = refused(centre.call(route.method, path_of(route), sent), 422)
    lines = body["details"].splitlines()
    assert "denied_surces: is not a known field" in lines
    assert "another: is not a known field" in lines


@pytest.mark.parametrize("route", WITH_FIELDS, ids=ids)
def test_every_field_that_is_wrong_is_named_in_a_line_of_its_own(
    centre: Centre, route: Any
) -> None:
    wrong = {name: {"not": "this"} for name in route.body if name != "detail"}
    body = refused(centre.call(route.method, path_of(route), wrong), 422)
    named = {line.partition(":")[0].partition(".")[0] for line in body["details"].splitlines()}
    assert named == set(wrong)


@pytest.mark.parametrize("route", REQUIRING, ids=ids)
def test_a_missing_required_field_is_422(centre: Centre, route: Any) -> None:
    body = refused(centre.call(route.method, path_of(route), {}), 422)
    assert "is required" in body["details"]


@pytest.mark.parametrize("route", WITH_BODY, ids=ids)
def test_a_body_over_one_mebibyte_is_413(centre: Centre, route: Any) -> None:
    raw = b'{"name": "' + b"a" * (1024 * 1024) + b'"}'
    refused(centre.call(route.method, path_of(route), raw=raw), 413)


def test_a_chunked_body_over_one_mebibyte_is_413(centre: Centre) -> None:
    answer = raw_request(
        centre,
        b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        + f"X-API-Key: {centre.admin_key}\r\n\r\n".encode()
        + (b"10000\r\n" + b"a" * 0x10000 + b"\r\n") * 17
        + b"0\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_that_grows_over_one_mebibyte_when_unpacked_is_413(centre: Centre) -> None:
    raw = gzip.compress(b'{"name": "' + b"a" * (8 * 1024 * 1024) + b'"}')
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    refused(centre.call("POST", "/v1/keys", raw=raw, headers=headers), 413)


def test_a_body_just_under_the_limit_is_read(centre: Centre) -> None:
    query = "a" * (64 * 1024 + 1)
    body = refused(centre.call("POST", "/v1/context/evaluate", asked(query=query)), 422)
    assert body["details"].startswith("query: ")


@pytest.mark.parametrize(
    ("text", "status"),
    [("%00", 422), ("a%0Ab", 422), ("%C2%80", 422), ("a" * 257, 422), ("%FF", 400), ("%E4", 400)],
)
@pytest.mark.parametrize("route", IDENTIFIED, ids=ids)
def test_an_invalid_identifier_is_refused_in_a_path(
    centre: Centre, route: Any, text: str, status: int
) -> None:
    path = path_of(route).replace("none", text)
    refused(centre.call(route.method, path, BODIES.get(route.name)), status)


@pytest.mark.parametrize("route", IDENTIFIED, ids=ids)
def test_an_unknown_object_is_404(centre: Centre, route: Any) -> None:
    for text in ("none", "%2F", "a%2Fb", "%252F", "a" * 256, "..", "%2e%2e", "ü".encode().hex()):
        path = path_of(route).replace("none", text)
        refused(centre.call(route.method, path, BODIES.get(route.name)), 404)


NO_PAGE = """
limit=0 limit=1001 limit=x limit= limit=-1 limit=1.5 limit=1&limit=2 colour=blue
cursor=x cursor= cursor=W10 cursor=bnVsbA cursor=WzEsMiwzXQ
cursor=WzFlMzAsICJhIl0 cursor=WzE4NDQ2NzQ0MDczNzA5NTUxNjE1XQ
"""


@pytest.mark.parametrize("query", NO_PAGE.split())
@pytest.mark.parametrize("route", LISTS, ids=ids)
def test_a_page_that_can_t_be_asked_for_is_422(centre: Centre, route: Any, query: str) -> None:
    refused(centre.call("GET", f"{path_of(route)}?{query}"), 422)


@pytest.mark.parametrize(
    "query",
    ["decision=MAYBE", "from=yesterday", "to=2026-01-01", "agent_role=%00", "user_id=", "frm=x"],
)
def test_a_filter_that_can_t_match_is_422(centre: Centre, query: str) -> None:
    refused(centre.call("GET", f"/v1/audit/events?{query}"), 422)


@pytest.mark.parametrize("query", ["agent_role=%FF", "&".join(f"a{n}=1" for n in range(100))])
def test_a_query_that_can_t_be_read_is_400(centre: Centre, query: str) -> None:
    refused(centre.call("GET", f"/v1/audit/events?{query}"), 400)


@pytest.mark.parametrize(
    "query", ["since=-1", "since=x", "wait=26", "wait=-1", "wait=nan", "wait=inf", "wait=x"]
)
def test_a_poll_that_can_t_be_is_422(centre: Centre, query: str) -> None:
    refused(centre.call("GET", f"/v1/sidecars/policy-set?{query}"), 422)


def test_a_path_that_is_unknown_is_404_with_the_error_body(centre: Centre) -> None:
    for path in ("//", "/nothing", "/v1/nothing", "/v1/keys/", "//v1/keys", "/health/", "/V1/keys"):
        assert refused(centre.call("GET", path), 404)["error"] == "Not Found"


def test_a_method_that_is_unknown_is_405_and_says_which_are_known(centre: Centre) -> None:
    for method in ("PUT", "TRACE", "OPTIONS", "PATCH", "PROPFIND"):
        answer = centre.call(method, "/v1/keys")
        refused(answer, 405)
        assert answer.headers["Allow"] == "GET, HEAD, POST"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_head_is_get_without_the_body(centre: Centre) -> None:
    for path in ("/health", "/v1/keys", "/openapi.json"):
        get, head = centre.call("GET", path), centre.call("HEAD", path)
        assert (head.status, head.raw) == (200, b"")
        assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 10000 + b"\r\n\r\n",
        b"GET /" + b"a" * 10000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=range(7),
)
def test_what_is_no_http_is_400_with_the_error_body(centre: Centre, request_: bytes) -> None:
    answer = raw_request(centre, request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400", answer
    assert b"Server: sluice" in head
    assert b"X-Request-ID: " in head
    assert json.loads(body)["code"] == 400


def test_a_chunked_body_that_breaks_off_is_400(centre: Centre) -> None:
    head = f"POST /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: {centre.admin_key}\r\n".encode()
    answer = raw_request(centre, head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nnonsense\r\n")
    assert answer.split(b" ")[1] == b"400", answer


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(centre: Centre) -> None:
    body = b'{"name": 1, "scope": "read"}'
    head = (
        f"POST /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: {centre.admin_key}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", centre.port), timeout=5) as connection:
        connection.sendall(head)
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 422 ")


def test_a_request_id_is_echoed_where_it_is_sound_and_made_where_it_is_not(centre: Centre) -> None:
    sound = centre.call("GET", "/health", headers={"X-Request-ID": "trace-1:2/3"})
    assert sound.headers["X-Request-ID"] == "trace-1:2/3"
    made = {
        centre.call("GET", "/health", headers={"X-Request-ID": bad}).headers["X-Request-ID"]
        for bad in ("a b", "x" * 129, "<script>", "")
    }
    assert len(made) == 4
    assert all(each and " " not in each and "<" not in each for each in made)


def test_a_fault_of_ours_is_500_and_shows_the_request_id_alone(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr("control_api.use_cases.keys.list_keys.page_of", broken)
    answer = centre.call("GET", "/v1/keys", headers={"X-Request-ID": "find-me"})
    body = refused(answer, 500)
    assert "find-me" in body["message"]
    assert "secret" not in answer.raw.decode()


def raw_request(centre: Centre, request: bytes) -> bytes:
    """The response to these bytes, which need not be a valid request."""
    received = b""
    with socket.create_connection(("127.0.0.1", centre.port), timeout=10) as connection:
        connection.sendall(request)
        while b'"code":' not in received:
            chunk = connection.recv(65536)
            if not chunk:
                break
            received += chunk
    return received


@pytest.mark.parametrize("resets", [False, True])
def test_a_client_that_hangs_up_in_mid_body_is_one_line_with_its_id(
    centre: Centre, caplog: pytest.LogCaptureFixture, resets: bool
) -> None:
    ids: list[str | None] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "sluice.http":
                ids.append(REQUEST_ID.get())

    noting = Noting()
    caplog.set_level(logging.INFO)
    logging.getLogger("sluice.http").addHandler(noting)
    try:
        with socket.create_connection(("127.0.0.1", centre.port), timeout=5) as client:
            head = f"POST /v1/policies HTTP/1.1\r\nHost: a\r\nX-API-Key: {centre.admin_key}\r\n"
            head += "X-Request-ID: mine\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"{")
            if resets:
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        within(5, lambda: bool(ids))
        assert centre.call("GET", "/health").status == 200
    finally:
        logging.getLogger("sluice.http").removeHandler(noting)
    assert ids == ["mine"]
    [record] = [each for each in caplog.records if each.name == "sluice.http"]
    assert (record.levelno, record.exc_info) == (logging.INFO, None)
    assert "disconnected" in record.getMessage()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
