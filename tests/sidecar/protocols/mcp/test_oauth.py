"""The routes of a server's own authorization server: discovery is open, tokens are judged, and none
of the agent's other credentials arrive."""

from base64 import b64encode
from pathlib import Path

import pytest

from policies.ground.keys import make_key
from tests.sidecar.protocols.mcp.wire import Wire, wired
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.proxy import policy
from tests.support.scripted_source import answer

FORM = "Content-Type: application/x-www-form-urlencoded"
JSON = "Content-Type: application/json"
BASIC = f"Authorization: Basic {b64encode(b'client:secret').decode()}"
CREDENTIALS = ("Authorization: Bearer agents-own", "Cookie: s=1", "X-Api-Key: other")
CLIENT = b'{"redirect_uris":["http://127.0.0.1:1/cb"],"client_name":"a","client_name#de":"b"}'
CODE = b"grant_type=authorization_code&code=c&resource=a&resource=b&client_secret=s"
SOURCE = "mcp://kb/authorization"
ALLOWED = policy(allowed_sources=(SOURCE,))


async def send(wire: Wire, line: str, body: bytes, *fields: str) -> Answered:
    wire.upstream.script = answer(body=b"{}")
    head = [f"{line} HTTP/1.1", "Host: kb", "Connection: close", *fields]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return await ask(wire.port, "\r\n".join(head).encode() + b"\r\n\r\n" + body)


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/openid-configuration",
        "/tenant/.well-known/openid-configuration",
    ],
)
async def test_discovery_is_open_and_brings_no_credentials(wire: Wire, path: str) -> None:
    stated = ("MCP-Protocol-Version: 2025-11-25", *CREDENTIALS, BASIC)
    assert (await send(wire, f"GET {path}", b"", *stated)).status == 200
    [seen] = wire.upstream.seen
    assert seen.target == path
    names = {name.lower() for name, _ in seen.fields}
    assert names == {"host", "mcp-protocol-version"}
    assert await wire.sidecar.decisions() == []


@pytest.mark.parametrize(
    "line",
    [
        "GET /.well-known/oauth-protected-resource?x=1",
        "GET /.well-known/other",
        "GET /.well-known",
        "GET /x/oauth-protected-resource",
        "POST /.well-known/oauth-authorization-server",
        "GET /token",
        "POST /token/",
        "DELETE /register",
        "GET /authorize/x",
    ],
)
async def test_no_other_route_is_open(wire: Wire, line: str) -> None:
    assert (await send(wire, line, b"")).status == 403
    assert wire.upstream.seen == []
    assert await wire.sidecar.decisions() == [("DENY", "unclassified_route", "mcp://kb")]


@pytest.mark.parametrize(
    ("line", "body", "field", "arrives"),
    [
        ("POST /register", CLIENT, JSON, {"content-type"}),
        ("POST /token", CODE, FORM, {"content-type"}),
        (
            "POST /token",
            b'{"grant_type":"refresh_token","refresh_token":"r"}',
            JSON,
            {"content-type"},
        ),
        (
            "GET /authorize?response_type=code&client_id=a&state=s%20t",
            b"",
            "Accept: */*",
            {"accept"},
        ),
    ],
)
async def test_token_requests_are_judged_and_carry_no_credentials_of_the_agent(
    tmp_path: Path, line: str, body: bytes, field: str, arrives: set[str]
) -> None:
    async with wired(tmp_path, ALLOWED) as wire:
        assert (await send(wire, line, body, field, *CREDENTIALS)).status == 200
        [seen] = wire.upstream.seen
        assert (seen.line, seen.body) == (f"{line} HTTP/1.1", body)
        names = {name.lower() for name, _ in seen.fields}
        assert names - {"host", "content-length"} == arrives
        assert await wire.sidecar.decisions() == [("ALLOW", "analysts-read", SOURCE)]


async def test_a_token_without_a_policy_is_denied_in_the_form_of_oauth(wire: Wire) -> None:
    answered = await send(wire, "POST /token", CODE, FORM)
    assert answered.status == 403
    assert answered.json["error"] == "access_denied"
    assert answered.json["decision"]["decision"] == "DENY"
    assert wire.upstream.seen == []
    assert await wire.sidecar.decisions() == [("DENY", "analysts-read", SOURCE)]


async def test_only_a_token_request_may_authenticate_its_client(tmp_path: Path) -> None:
    async with wired(tmp_path, ALLOWED) as wire:
        assert (await send(wire, "POST /token", CODE, FORM, BASIC)).status == 200
        assert (await send(wire, "POST /register", CLIENT, JSON, BASIC)).status == 200
        token, register = wire.upstream.seen
        assert token.values("authorization") == [BASIC.partition(": ")[2]]
        assert register.values("authorization") == []


@pytest.mark.parametrize(
    ("line", "body", "field"),
    [
        ("POST /token", CODE + b"&code=d", FORM),
        ("POST /token", CODE + b"&password=p", FORM),
        ("POST /token", CODE + b"&scope=a;password=p", FORM),
        ("POST /token", b"grant_type", FORM),
        ("POST /token", b"grant_type=\xff", FORM),
        ("POST /token", b'{"code":["c"]}', JSON),
        ("POST /token", CODE, "Content-Type: text/plain"),
        ("POST /register", b'{"admin":true}', JSON),
        ("POST /register", b"[]", JSON),
        ("GET /authorize?client_id=a&client_id=b", b"", "Accept: */*"),
        ("GET /authorize?password=p", b"", "Accept: */*"),
        ("GET /authorize?state=s;password=p", b"", "Accept: */*"),
    ],
)
async def test_a_request_not_known_to_be_harmless_is_refused(
    tmp_path: Path, line: str, body: bytes, field: str
) -> None:
    async with wired(tmp_path, ALLOWED) as wire:
        answered = await send(wire, line, body, field)
        assert (answered.status, answered.json["error"]) == (400, "invalid_request")
        assert wire.upstream.seen == []
        assert await wire.sidecar.decisions() == [("DENY", "unreadable_request", "mcp://kb")]


async def test_a_key_of_ours_is_never_sent_as_a_client_s_secret(tmp_path: Path) -> None:
    key = make_key(bytes(32))
    basic = b64encode(f"client:{key}".encode()).decode()
    async with wired(tmp_path, ALLOWED) as wire:
        body = f"grant_type=client_credentials&client_secret={key}".encode()
        assert (await send(wire, "POST /token", body, FORM)).status == 400
        field = f"Authorization: Basic {basic}"
        assert (await send(wire, "POST /token", CODE, FORM, field)).status == 400
        assert wire.upstream.seen == []
