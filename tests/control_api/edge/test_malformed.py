"""Bodies, identifiers and queries that are refused: the right status and error body, and nothing of
them in the log (`CONTRACT.md`, Errors)."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from typing import Any

import pytest

from control_api.edge.request_shell import PIECE, inflated
from control_api.routes import ROUTES
from policies.ground.errors import Malformed, TooLarge
from tests.control_api.edge.expected import CREATES
from tests.control_api.edge.refused_requests import heads, nothing_recorded, raw_request, refused
from tests.control_api.edge.test_scopes import BODIES, ids, path_of
from tests.runner import tiers
from tests.support.control_api import SUPERADMIN, Answer, ControlApi, asked

__all__ = ["heads", "nothing_recorded"]  # fixtures
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


@tiers.sampled("route", "raw", each=2)
@pytest.mark.parametrize("raw", NOT_JSON, ids=range(len(NOT_JSON)))
@pytest.mark.parametrize("route", WITH_FIELDS, ids=ids)
def test_a_body_that_is_not_a_json_object_is_400(api: ControlApi, route: Any, raw: bytes) -> None:
    body = refused(api.call(route.method, path_of(route), raw=raw), 400)
    assert body["error"] == "Bad Request"


@tiers.sampled("route", "content_type")
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "x"],
)
@pytest.mark.parametrize("route", WITH_FIELDS, ids=ids)
def test_another_content_type_is_400(api: ControlApi, route: Any, content_type: str) -> None:
    body = BODIES[route.name]
    headers = {"Content-Type": content_type}
    refused(api.call(route.method, path_of(route), body, headers=headers), 400)


@pytest.mark.parametrize("route", UNIQUE, ids=ids)
def test_a_duplicate_key_in_a_management_write_is_400(api: ControlApi, route: Any) -> None:
    name, value = next(iter(BODIES[route.name].items()))
    raw = json.dumps(BODIES[route.name])[:-1] + f', "{name}": {json.dumps(value)}}}'
    body = refused(api.call(route.method, path_of(route), raw=raw.encode()), 400)
    assert name in body["message"]


@pytest.mark.parametrize("route", CLOSED, ids=ids)
def test_unknown_fields_in_a_write_are_422_all_at_once(api: ControlApi, route: Any) -> None:
    sent = {**BODIES[route.name], "denied_surces": [], "another": 1}
    body = refused(api.call(route.method, path_of(route), sent), 422)
    lines = body["details"].splitlines()
    assert "denied_surces: is not a known field" in lines
    assert "another: is not a known field" in lines


@pytest.mark.parametrize("route", WITH_FIELDS, ids=ids)
def test_every_invalid_field_has_a_line_of_its_own(api: ControlApi, route: Any) -> None:
    wrong = {name: {"not": "this"} for name in route.body if name != "detail"}
    body = refused(api.call(route.method, path_of(route), wrong), 422)
    named = {line.partition(":")[0].partition(".")[0] for line in body["details"].splitlines()}
    assert named == set(wrong)


@pytest.mark.parametrize("route", REQUIRING, ids=ids)
def test_a_missing_required_field_is_422(api: ControlApi, route: Any) -> None:
    body = refused(api.call(route.method, path_of(route), {}), 422)
    assert "is required" in body["details"]


@pytest.mark.parametrize("route", WITH_BODY, ids=ids)
def test_a_body_over_the_route_s_limit_is_413(api: ControlApi, route: Any) -> None:
    key = SUPERADMIN if route.path.startswith("/v1/admin/") else api.admin_key
    head = f"{route.method} {path_of(route)} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
    answer = raw_request(api, f"{head}Content-Length: {route.max_body + 1}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    most = {route.max_body for route in WITH_BODY}
    assert most <= {16 * 1024, 1024 * 1024, 32 * 1024 * 1024}


def test_a_chunked_body_over_one_mebibyte_is_413(api: ControlApi) -> None:
    answer = raw_request(
        api,
        b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        + f"X-API-Key: {api.admin_key}\r\n\r\n".encode()
        + (b"10000\r\n" + b"a" * 0x10000 + b"\r\n") * 17
        + b"0\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


def packed(api: ControlApi, raw: bytes, coding: str, **given: Any) -> Answer:
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    return api.call("POST", "/v1/context/simulate", raw=raw, headers=headers, **given)


ASKED = json.dumps(asked()).encode()


@pytest.mark.parametrize(
    ("raw", "coding"),
    [(gzip.compress(ASKED), "gzip"), (gzip.compress(ASKED), "X-GZIP"), (ASKED, "identity"),
     (zlib.compress(ASKED), "deflate")],
    ids=["gzip", "x-gzip", "identity", "deflate"],
)  # fmt: skip
def test_a_compressed_body_is_read(api: ControlApi, raw: bytes, coding: str) -> None:
    assert packed(api, raw, coding).status == 200


@pytest.mark.parametrize(
    ("raw", "coding", "says"),
    [(ASKED, "gzip", "not encoded with gzip"), (gzip.compress(ASKED), "deflate", "not encoded"),
     (gzip.compress(ASKED)[:-1], "gzip", "cut short"), (b"", "gzip", "cut short"),
     (gzip.compress(ASKED) * 2, "gzip", "something follows"),
     (gzip.compress(gzip.compress(ASKED)), "gzip, gzip", "expected gzip, deflate or none"),
     (ASKED, "br", "expected gzip, deflate or none")],
    ids=["plain", "gzip as deflate", "cut short", "nothing", "two members", "twice", "unknown"],
)  # fmt: skip
def test_a_body_in_another_encoding_than_declared_is_refused(
    api: ControlApi, raw: bytes, coding: str, says: str
) -> None:
    assert says in refused(packed(api, raw, coding), 400)["message"]


@pytest.mark.parametrize("size", [0, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
async def test_a_body_is_inflated_a_piece_at_a_time(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inflater copies what it leaves of each piece: of the whole body, it would copy it all."""
    given: list[int] = []
    made = zlib.decompressobj

    class Counted:
        def __init__(self, window: int) -> None:
            self._inflater = made(window)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inflater, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            given.append(len(data))
            return self._inflater.decompress(data, most)

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    for raw in (bytes(size), random.Random(size).randbytes(size)):
        assert await inflated(gzip.compress(raw), "gzip", size) == raw
        with pytest.raises(Malformed, match="something follows"):
            await inflated(gzip.compress(raw) + bytes(2 * PIECE), "gzip", size)
        if size:
            with pytest.raises(TooLarge):
                await inflated(gzip.compress(raw), "gzip", size - 1)
    assert max(given) <= PIECE


def test_a_body_that_grows_over_the_limit_when_it_is_inflated_is_413(api: ControlApi) -> None:
    grows = b'{"name": "' + b"a" * (8 * 1024 * 1024) + b'"}'
    for raw, coding in ((gzip.compress(grows), "gzip"), (zlib.compress(grows), "deflate")):
        answer = refused(packed(api, raw, coding), 413)
        assert "when it is inflated" in answer["message"]


def test_nothing_is_inflated_for_a_caller_without_a_key(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, inflated = gzip.compress(ASKED), list[int]()
    monkeypatch.setattr(zlib, "decompressobj", inflated.append)
    refused(packed(api, raw, "gzip", key=None), 401)
    refused(packed(api, raw, "gzip", key="sk_none"), 403)
    assert inflated == []


def test_a_body_just_under_the_limit_is_read(api: ControlApi) -> None:
    query = "a" * (64 * 1024 + 1)
    body = refused(api.call("POST", "/v1/context/evaluate", asked(query=query)), 422)
    assert body["details"].startswith("query: ")


@tiers.sampled("route", "text")
@pytest.mark.parametrize(
    ("text", "status"),
    [("%00", 422), ("a%0Ab", 422), ("%C2%80", 422), ("a" * 257, 422), ("%FF", 400), ("%E4", 400)],
)
@pytest.mark.parametrize("route", IDENTIFIED, ids=ids)
def test_an_invalid_identifier_is_refused_in_a_path(
    api: ControlApi, route: Any, text: str, status: int
) -> None:
    path = path_of(route).replace("none", text)
    refused(api.call(route.method, path, BODIES.get(route.name)), status)


@pytest.mark.parametrize(
    "route", [each for each in IDENTIFIED if (each.method, each.path) not in CREATES], ids=ids
)
def test_an_unknown_object_is_404(api: ControlApi, route: Any) -> None:
    for text in ("none", "%2F", "a%2Fb", "%252F", "a" * 256, "..", "%2e%2e", "ü".encode().hex()):
        path = path_of(route).replace("none", text)
        refused(api.call(route.method, path, BODIES.get(route.name)), 404)


NO_PAGE = """
limit=0 limit=1001 limit=x limit= limit=-1 limit=1.5 limit=1&limit=2 colour=blue
cursor=x cursor= cursor=W10 cursor=bnVsbA cursor=WzEsMiwzXQ
cursor=WzFlMzAsICJhIl0 cursor=WzE4NDQ2NzQ0MDczNzA5NTUxNjE1XQ
"""


@tiers.sampled("route", "query")
@pytest.mark.parametrize("query", NO_PAGE.split())
@pytest.mark.parametrize("route", LISTS, ids=ids)
def test_an_invalid_page_is_422(api: ControlApi, route: Any, query: str) -> None:
    refused(api.call("GET", f"{path_of(route)}?{query}"), 422)


@pytest.mark.parametrize(
    "query",
    ["decision=MAYBE", "from=yesterday", "to=2026-01-01", "agent_role=%00", "user_id=", "frm=x"],
)
def test_an_invalid_filter_is_422(api: ControlApi, query: str) -> None:
    refused(api.call("GET", f"/v1/audit/events?{query}"), 422)


@pytest.mark.parametrize("query", ["agent_role=%FF", "&".join(f"a{n}=1" for n in range(100))])
def test_an_unreadable_query_is_400(api: ControlApi, query: str) -> None:
    refused(api.call("GET", f"/v1/audit/events?{query}"), 400)


@pytest.mark.parametrize(
    "query", ["since=-1", "since=x", "wait=26", "wait=-1", "wait=nan", "wait=inf", "wait=x"]
)
def test_an_invalid_poll_is_422(api: ControlApi, query: str) -> None:
    refused(api.call("GET", f"/v1/sidecars/policy-set?{query}"), 422)
