"""How each HTTP door reads what a gateway asks, and what a client can't say for itself."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import key_name
from sidecar.settings.model import Source
from tests.sidecar.doors.http.checks import CRM, DOORS, Checks, checks, question
from tests.support.fake_control_api import EVALUATE_KEY, policy

EACH = pytest.mark.parametrize("door", ["edge", "nginx", "ingress"])
FORWARD = pytest.mark.parametrize(
    ("door", "family"), [("nginx", "Forwarded"), ("ingress", "Original")]
)
JSON = ("Content-Type", "application/json")
MIB = 1024 * 1024


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Checks]:
    async with checks(tmp_path, policy(allowed_sources=("rest://crm/a*",))) as made:
        yield made


def of_kind(kind: str, **changes: object) -> Source:
    return replace(CRM, kind=kind, **changes)  # type: ignore[arg-type]


async def unreadable(asked: Checks, door: str, *question: object, **more: object) -> str:
    """Asserts that a check is denied as unreadable, and returns the reason."""
    answer = await asked.ask(door, *question, **more)  # type: ignore[arg-type]
    assert (answer.status, answer.decision) == (403, "DENY"), question
    decision = answer.json()["decision"]
    assert decision["policy_name"] == "unreadable_request", question
    return str(decision["reason"])


# ------------------------------------------------------------------------------------- targets


HOSTILE = [
    "/a/../b", "/a/%2e%2e/b", "/a/.%2e/b", "/a/./b", "/a//b", "//a", "///a", "/a%2fb", "/a%2Fb",
    "/a%5cb", "/a%5C..%5Cb", "/a\\b", "/a%00", "/a%0a", "/a%0d%0aX:%20y", "/a%252fb", "/a%252e",
    "/a%zz", "/a%", "/a%2", "/a#b", "/%c0%ae", "/%ff", "/..;/b", "/a/..;x=1/b", "/a/..%3b/b",
]  # fmt: skip


@EACH
async def test_a_target_with_two_readings_is_unreadable(asked: Checks, door: str) -> None:
    for target in HOSTILE:
        await unreadable(asked, door, "GET", target)
    records = await asked.decided()
    assert len(records) == len(HOSTILE)
    assert {each["source_id"] for each in records} == {"rest://crm"}


@EACH
async def test_the_query_is_not_part_of_the_source(asked: Checks, door: str) -> None:
    for query in ("?", "?a=/../b", "?x=%2f%00", "?a=b&a=c"):
        assert (await asked.ask(door, "GET", f"/a{query}")).status == 200
    assert {each["source_id"] for each in await asked.decided()} == {"rest://crm/a"}


@EACH
async def test_two_spellings_of_a_path_are_one_source(asked: Checks, door: str) -> None:
    for target in ("/ab%2Dc", "/%61b-c", "/ab-c"):
        assert (await asked.ask(door, "GET", target)).status == 200
    assert {each["source_id"] for each in await asked.decided()} == {"rest://crm/ab-c"}


async def test_the_path_below_the_door_s_name_is_the_checked_one(asked: Checks) -> None:
    for rest in ("", "?a"):
        await unreadable(asked, "edge", "GET", rest)
    # A name that is a part of another's is another door.
    assert (await asked.ask("edge", "GET", "2/a")).status == 404


async def test_an_absolute_target_is_refused(asked: Checks) -> None:
    data = f"GET http://gateway/v1/check/edge/a HTTP/1.1\r\nHost: a\r\nX-API-Key: {EVALUATE_KEY}"
    assert (await asked.send(data.encode() + b"\r\n\r\n")).status == 404
    assert await asked.decided() == []


# ------------------------------------------------------------------------------------- methods


@EACH
async def test_every_method_is_judged(asked: Checks, door: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"):
        await asked.ask(door, method)
    decided = [(each["decision"], each["policy_name"]) for each in await asked.decided()]
    assert decided == [("ALLOW", "underwriting")] * 2 + [("DENY", "write_denied")] * 5


async def test_writes_may_be_allowed(tmp_path: Path) -> None:
    async with checks(tmp_path, source=replace(CRM, writes="allow")) as asked:
        for door in ("edge", "nginx", "ingress"):
            assert (await asked.ask(door, "DELETE")).status == 200


async def forwarded(asked: Checks, door: str, *fields: tuple[str, str]) -> tuple[int, str | None]:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    head = f"GET /v1/check/{door} HTTP/1.1\r\nHost: g\r\nX-API-Key: {EVALUATE_KEY}\r\n{lines}\r\n"
    answer = await asked.send(head.encode("latin-1"))
    return answer.status, answer.decision


@FORWARD
async def test_a_request_that_is_not_stated_once_is_unreadable(
    asked: Checks, door: str, family: str
) -> None:
    method, uri = (f"X-{family}-Method", "GET"), (f"X-{family}-Uri", "/a")
    assert await forwarded(asked, door, method, uri) == (200, "ALLOW")
    for fields in (
        (),
        (method,),
        (uri,),
        (method, method, uri),
        (method, uri, uri),
        (method, (uri[0], "/b"), uri),
        ((method[0], "GET, POST"), uri),
        ((method[0], "GET,GET"), uri),
        (method, (uri[0], "")),
        (method, (uri[0], "a")),
        (method, (uri[0], "/a, /b")),
        (method, (uri[0], "/\xe9")),
        ((f"X_{family}_Method", "GET"), (f"X_{family}_Uri", "/a")),
    ):
        assert await forwarded(asked, door, *fields) == (403, "DENY"), fields
    names = {each["policy_name"] for each in (await asked.decided())[1:]}
    assert names == {"unreadable_request"}


@FORWARD
async def test_headers_of_the_other_family_are_ignored(
    asked: Checks, door: str, family: str
) -> None:
    other = {"Forwarded": "Original", "Original": "Forwarded"}[family]
    spoof = [(f"X-{other}-{name}", value) for name, value in
             (("Method", "GET"), ("Uri", "/a"), ("Url", "http://h/a"), ("Host", "h"))]  # fmt: skip
    assert await forwarded(asked, door, *spoof) == (403, "DENY")
    own = [(f"X-{family}-Method", "GET"), (f"X-{family}-Uri", "/b")]
    assert await forwarded(asked, door, *own, *spoof) == (403, "DENY")
    assert (await asked.decided())[-1]["source_id"] == "rest://crm/b"
    # Nor do the headers of other kinds of proxies.
    rewritten = [("X-Rewrite-URL", "/a"), ("Forwarded", "for=1;host=h"), ("X-Real-IP", "1.2.3.4")]
    assert await forwarded(asked, door, *rewritten) == (403, "DENY")


async def test_an_original_url_is_absolute_or_a_path(asked: Checks) -> None:
    method = ("X-Original-Method", "GET")
    for url in ("/a", "http://h/a", "https://h:8443/a?b", "HTTP://h/a"):
        assert await forwarded(asked, "ingress", method, ("X-Original-URL", url)) == (200, "ALLOW")
    for url in ("http://h", "http://h?/a", "http:///a", "http://h\\@x/a", "ftp://h/a", "//h/a",
                "http://u@h/a", "http://h/../a", "h/a", "http://h//a"):  # fmt: skip
        decided = await forwarded(asked, "ingress", method, ("X-Original-URL", url))
        assert decided == (403, "DENY"), url
    both = ("X-Original-URI", "/a"), ("X-Original-URL", "http://h/a")
    assert await forwarded(asked, "ingress", method, *both) == (403, "DENY")


# ------------------------------------------------------------- what a request says of itself


@EACH
async def test_no_header_of_the_request_changes_the_identity(asked: Checks, door: str) -> None:
    spoofed = (
        ("X-Sluice-Role", "admin"),
        ("X-Sluice-Agent", "agt_other"),
        ("X-Sluice-Agent-Id", "agt_other"),
        ("X-Sluice-Decision", "ALLOW"),
        ("X-Sluice-Event-Id", "x"),
        ("X-Forwarded-User", "root"),
        ("X-Forwarded-Client-Cert", "By=x;Subject=admin"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Envoy-Internal", "true"),
        ("baggage", "sluice.role=admin,sluice.agent=agt_other,sluice.agent_role=admin"),
        ("Cookie", "role=admin"),
    )
    query = "?agent_role=admin&agent_id=agt_other"
    assert (await asked.ask(door, "GET", f"/a{query}", *spoofed)).status == 200
    assert (await asked.ask(door, "GET", f"/b{query}", *spoofed)).status == 403
    for record in await asked.decided():
        assert (record["agent_id"], record["agent_role"]) == ("agt_loans", "underwriter")


@EACH
async def test_the_end_user_s_key_is_not_taken_for_the_gateway_s(asked: Checks, door: str) -> None:
    spoofed = ("X-Api-Key", make_key(b"u" * 32))
    assert (await asked.ask(door, "GET", "/a", spoofed)).status == 403  # there are two
    assert (await asked.ask(door, "GET", "/a", spoofed, key=None)).status == 403
    assert (await asked.ask(door, "GET", "/a", ("X_Api_Key", EVALUATE_KEY), key=None)).status == 401
    assert await asked.decided() == []


@EACH
async def test_attribution_is_recorded_and_widens_nothing(asked: Checks, door: str) -> None:
    stated = ("X-Sluice-Task", "review"), ("X-Sluice-Sensitivity", "critical")
    assert (await asked.ask(door, "GET", "/a", *stated)).status == 403
    [record] = await asked.decided()
    assert (record["task_type"], record["sensitivity_level"]) == ("review", "critical")
    await unreadable(asked, door, "GET", "/a", *stated, ("x-sluice-task", "other"))
    await unreadable(asked, door, "GET", "/a", ("X-Sluice-Sensitivity", "none"))
    await unreadable(asked, door, "GET", "/a", ("X-Sluice-User", "a" * 257))
    await unreadable(asked, door, "GET", "/a", ("baggage", "sluice.user=a,sluice.user=b"))


@EACH
async def test_no_header_overrides_the_judged_request(asked: Checks, door: str) -> None:
    for name in ("X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X-Rewrite-URL"):
        assert name in await unreadable(asked, door, "GET", "/a", (name, "DELETE"))
    # Programs behind CGI and WSGI read these as the names with dashes.
    for name in (
        "X_HTTP_Method_Override",
        "X-Original_URL",
        "X.Rewrite.URL",
        "X_Sluice_User",
        "x.api-key",
        "X_Forwarded_Host",
        "X.Host",
    ):
        assert name in await unreadable(asked, door, "GET", "/a", (name, "DELETE"))


@EACH
async def test_the_connection_header_cannot_hide_what_is_read(asked: Checks, door: str) -> None:
    await unreadable(asked, door, "GET", "/a", ("Connection", "X-Sluice-Sensitivity"))


# -------------------------------------------------------------------------------------- bodies

QUERY = "/query"
PINECONE = of_kind("pinecone")


@pytest.mark.parametrize(
    ("door", "setting"),
    [
        ("edge", "(Envoy: `with_request_body`"),
        ("nginx", "nginx, Caddy and Kong can't"),
        ("ingress", "(Traefik: `forwardBody`"),
    ],
)
async def test_a_body_that_decides_must_be_in_the_check(
    tmp_path: Path, door: str, setting: str
) -> None:
    async with checks(tmp_path, source=PINECONE) as asked:
        assert (await asked.ask(door, "POST", QUERY, JSON, body=b"{}")).status == 200
        assert setting in await unreadable(asked, door, "POST", QUERY, JSON)
        for body in (b"{", b"[]", b'{"a":1,"a":2}', b"\xff", b"null"):
            await unreadable(asked, door, "POST", QUERY, JSON, body=body)
        await unreadable(asked, door, "POST", QUERY, JSON, ("Content-Encoding", "gzip"), body=b"{}")


async def test_a_part_of_a_body_decides_nothing(tmp_path: Path) -> None:
    async with checks(tmp_path, source=PINECONE) as asked:
        for flag in ("true", "True", "1", "", "maybe"):
            partial = ("x-envoy-auth-partial-body", flag)
            reason = await unreadable(asked, "edge", "POST", QUERY, JSON, partial, body=b"{}")
            assert "max_request_bytes" in reason
        # A gateway that says nothing of it may have sent a part.
        silent = question("edge", "POST", QUERY, [JSON], b"{}", EVALUATE_KEY)
        silent = silent.replace(b"x-envoy-auth-partial-body: false\r\n", b"")
        assert (await asked.send(silent)).status == 403
        whole = ("x-envoy-auth-partial-body", "false")
        assert (await asked.ask("edge", "POST", QUERY, JSON, whole, body=b"{}")).status == 200
        # The client's own doesn't count beside Envoy's.
        for flags in (("false", "true"), ("true", "false")):
            fields = [("X-Envoy-Auth-Partial-Body", flag) for flag in flags]
            await unreadable(asked, "edge", "POST", QUERY, JSON, *fields, body=b"{}")


async def test_a_body_that_does_not_matter_may_be_absent(asked: Checks) -> None:
    partial = ("x-envoy-auth-partial-body", "true")
    assert (await asked.ask("edge", "GET", "/a", partial, body=b"x")).status == 200


async def test_a_chunked_body_is_read(tmp_path: Path) -> None:
    async with checks(tmp_path, source=PINECONE) as asked:
        head = (
            f"POST /v1/check/edge{QUERY} HTTP/1.1\r\nHost: g\r\nX-API-Key: {EVALUATE_KEY}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
            "X-Envoy-Auth-Partial-Body: false\r\n\r\n"
        ).encode()
        assert (await asked.send(head + b"2\r\n{}\r\n0\r\n\r\n")).status == 200
        big = b"%x\r\n%b\r\n0\r\n\r\n" % (MIB + 1, b" " * (MIB + 1))
        assert (await asked.send(head + big)).status == 413


async def test_a_body_up_to_the_limit_is_read(tmp_path: Path) -> None:
    async with checks(tmp_path, source=PINECONE) as asked:
        body = b"{" + b" " * (MIB - 2) + b"}"
        assert (await asked.ask("edge", "POST", QUERY, JSON, body=body)).status == 200


# ---------------------------------------------------------------------------- modes and kinds


async def test_a_report_is_answered_as_allowed(tmp_path: Path) -> None:
    source = replace(CRM, mode="report")
    async with checks(tmp_path, policy(allowed_sources=("x",)), source=source) as asked:
        for door in ("edge", "nginx"):
            answer = await asked.ask(door)
            assert (answer.status, answer.decision, answer.body) == (200, "DENY", b"")
            assert (await asked.ask(door, "DELETE")).status == 200
            await unreadable(asked, door, "GET", "/a/../b")


async def test_an_open_route_passes_without_an_event(tmp_path: Path) -> None:
    async with checks(tmp_path, source=of_kind("chroma")) as asked:
        for door in ("edge", "nginx"):
            answer = await asked.ask(door, "GET", "/api/v2/heartbeat")
            assert (answer.status, answer.decision) == (200, "ALLOW")
            assert "x-sluice-event-id" not in answer.fields
        assert await asked.decided() == []


async def test_all_of_several_sources_must_be_allowed(tmp_path: Path) -> None:
    call = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":"find","arguments":{"index":"%b"}}}'
    )
    source = of_kind("mcp", arguments={"find": "index"})
    allowed = policy(allowed_sources=("mcp://crm/tool/*", "mcp://crm/data/loans"))
    async with checks(tmp_path, allowed, source=source) as asked:
        answer = await asked.ask("edge", "POST", "/mcp", JSON, body=call % b"loans")
        assert (answer.status, answer.decision) == (200, "ALLOW")
        answer = await asked.ask("edge", "POST", "/mcp", JSON, body=call % b"hr")
        assert (answer.status, answer.decision) == (403, "DENY")
        sources = [each["source_id"] for each in await asked.decided()]
        assert sources == ["mcp://crm/tool/find", "mcp://crm/data/loans", "mcp://crm/data/hr"]
        events = [record["eid"] for record in await asked.running.records()]
        assert answer.fields["x-sluice-event-id"] == events[-1]


async def test_the_host_of_the_gateway_is_not_a_bucket(tmp_path: Path) -> None:
    bucket = "loans.s3.eu-central-1.amazonaws.com"
    source = of_kind("s3", upstream="https://s3.eu-central-1.amazonaws.com")
    async with checks(tmp_path, source=source, doors=DOORS) as asked:
        method, uri = ("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/key")
        assert await forwarded(asked, "nginx", method, uri) == (403, "DENY")
        host = ("X-Forwarded-Host", bucket)
        assert await forwarded(asked, "nginx", method, uri, host) == (200, "ALLOW")
        assert await forwarded(asked, "nginx", method, uri, host, host) == (403, "DENY")
        url = ("X-Original-URL", f"https://{bucket}/key")
        original = ("X-Original-Method", "GET")
        assert await forwarded(asked, "ingress", original, url) == (200, "ALLOW")
        sources = [each["source_id"] for each in await asked.decided()]
        assert sources == ["s3://crm", "s3://crm/loans/key", "s3://crm", "s3://crm/loans/key"]


# ----------------------------------------------------------------------------- kept connections


async def test_a_request_with_a_cached_head_is_judged_again(asked: Checks) -> None:
    for _ in range(3):
        assert (await asked.ask("edge")).status == 200
        assert (await asked.ask("nginx", "GET", "/b")).status == 403
    asked.control.publish({key_name(key_digest(EVALUATE_KEY)): None})
    await asked.running.follows(asked.control.revision)
    assert (await asked.ask("edge")).status == 403
    assert len(await asked.decided()) == 6
