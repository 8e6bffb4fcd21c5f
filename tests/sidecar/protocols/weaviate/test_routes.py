"""The sources of requests to Weaviate, however they name them. In front of a minimal server
(`weaviate_server.py`). Every trap of data-sources.md 5.4 has a test here or in `test_filter.py`."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import weaviate
from graphql import parse

from sidecar.http.request_target import canonical
from sidecar.protocols.route_table import RouteClass
from sidecar.protocols.weaviate.routes import ROUTES, Weaviate
from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.weaviate_server import Server
from tests.sidecar.proxy.stand import CLOCK, ask, policy, source

OPEN = policy(allowed_sources=("weaviate://kb/Open*",))
ID = "00000001-0000-4000-8000-000000000000"
LOOKUP = "GET /v1/aliases"


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "weaviate", scripted(Server("low").answer), OPEN) as made:
        yield made


def q(query: str, **more: Any) -> dict[str, Any]:
    return {"query": query, **more}


def arrived(front: Minimal) -> list[str]:
    """The requests that arrived, without the look-ups of names."""
    return [line for line in front.lines if not re.match(LOOKUP + r"|GET /v1/schema/\w+\Z", line)]


def client(port: int) -> weaviate.WeaviateClient:
    # The client searches by gRPC, which the sidecar does not carry: GraphQL and REST remain.
    made = weaviate.WeaviateClient(
        weaviate.connect.ConnectionParams.from_params(
            "127.0.0.1", port, False, "127.0.0.1", 9, False
        ),
        skip_init_checks=True,
    )
    made.connect()
    return made


# what may be read


async def test_the_client_reads_through_the_listener_as_from_weaviate(front: Minimal) -> None:
    def read(port: int) -> list[Any]:
        with client(port) as made:
            return [
                made.graphql_raw_query("{ Get { Open { title _additional { id } } } }").get,
                made.graphql_raw_query("{ Aggregate { Open { meta { count } } } }").aggregate,
                made.collections.exists("Open"),
                made.collections.use("Open").data.exists(ID),
            ]

    through = await asyncio.to_thread(read, front.port)
    assert through == await asyncio.to_thread(read, front.upstream.port)
    assert set(await front.sources()) == {("ALLOW", "weaviate://kb/Open")}


async def test_a_denied_collection_raises_with_the_reason(front: Minimal) -> None:
    def read() -> None:
        with client(front.port) as made:
            made.graphql_raw_query("{ Get { Shut { title } } }")

    with pytest.raises(weaviate.exceptions.UnexpectedStatusCodeError, match="allowed_sources"):
        await asyncio.to_thread(read)
    assert await front.sources() == [("DENY", "weaviate://kb/Shut")]


async def test_a_query_is_forwarded_as_printed_from_the_judged_tree(front: Minimal) -> None:
    text = "# {Get{Shut}}\nquery Q($t: String) { Get { x: Open(tenant:$t,limit :1) { title } } }"
    body = q(text, variables={"t": "ours", "u": 1}, operationName="Q", extensions={"a": 1})
    assert (await front.ask("POST", "/v1/graphql", body)).status == 200
    sent = front.last
    assert sent.keys() == {"query", "variables", "operationName"}
    assert sent["variables"] == body["variables"]
    assert "#" not in sent["query"]
    assert parse(sent["query"], no_location=True) == parse(text, no_location=True)
    assert await front.sources() == [("ALLOW", "weaviate://kb/Open/ours")]


async def test_block_strings_are_forwarded_as_plain_ones(front: Minimal) -> None:
    where = '{operator: Like, path: "title", valueText: """a "b" \\""" c"""}'
    text = f"{{ Get {{ Open(where: {where}) {{ title }} }} }}"
    await front.ask("POST", "/v1/graphql", q(text))
    assert r'valueText: "a \"b\" \"\"\" c"' in front.last["query"]


async def test_plain_names_and_levels_come_from_the_configuration(tmp_path: Path) -> None:
    names = {
        "weaviate://kb/Open": NamedSource("handbook", "low"),
        "weaviate://kb/Shut/ours": NamedSource("contracts", "high"),
    }
    readers = policy(allowed_sources=("handbook", "contracts"), max_sensitivity="medium")
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "weaviate", server, readers, names=names) as front:
        await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        await front.ask("POST", "/v1/graphql", q('{ Get { Shut(tenant: "ours") { title } } }'))
        assert await front.sources() == [("ALLOW", "handbook"), ("DENY", "contracts")]


# what GraphQL asks for

WHERE = '(where: {operator: Like, path: ["next", "Shut", "title"], valueText: "x"})'
HIDDEN = [
    "{ Get { Shut { title } } }",
    "{ Get { shut { title } } }",
    "{ Get { Open: Shut { title } } }",
    "{ Get { Open { title } Shut { title } } }",
    "{ a: Get { Open { title } } b: Get { Shut { title } } }",
    "{ Get { ...F } } fragment F on GetObjectsObj { Shut { title } }",
    "{ ...F } fragment F on WeaviateObj { Get { ... { Shut { title } } } }",
    "{ ... on WeaviateObj { Get { ... on GetObjectsObj { Shut { title } } } } }",
    "{ Aggregate { Shut { meta { count } } } }",
    '{ Aggregate { Open(groupBy: ["next", "Shut", "title"]) { meta { count } } } }',
    "{ Get { OpenAlias { title } } }",
    "{ Get { Open { next { ... on Shut { title } } } } }",
    "{ Get { Open { next { ...F } } } } fragment F on Shut { title }",
    "{ Get { Open { next { ... on Open { next { ... on Shut { title } } } } } } }",
    "{ Get { Open" + WHERE + " { title } } }",
    "{ Aggregate { Open" + WHERE + " { meta { count } } } }",
    '{ Get { Open(nearObject: {beacon: "weaviate://localhost/Shut/' + ID + '"}) { title } } }',
    '{ Get { Open(hybrid: {searches: {nearText: {moveTo: {objects: [{beacon: "weaviate://localhost/'
    "shut/" + ID + '"}]}}}}) { title } } }',
    "{ Get { Open { title } ... @include(if: false) { Shut { title } } } }",
]  # fmt: skip


@pytest.mark.parametrize("query", HIDDEN)
async def test_a_collection_hidden_in_a_query_is_judged(front: Minimal, query: str) -> None:
    denied(await front.ask("POST", "/v1/graphql", q(query)), "analysts-read")
    assert [each[1] for each in await front.sources()] == ["weaviate://kb/Shut"]
    assert arrived(front) == []


@pytest.mark.parametrize("query", HIDDEN[::6])
async def test_a_collection_hidden_in_a_batch_is_judged(front: Minimal, query: str) -> None:
    batch = [q("{ Get { Open { title } } }"), q(query)]
    denied(await front.ask("POST", "/v1/graphql/batch", batch), "analysts-read")
    assert arrived(front) == []


async def test_a_filter_in_a_variable_is_judged(front: Minimal) -> None:
    where = {"operator": "Like", "path": ["next", "Shut", "title"], "valueText": "x"}
    text = "query($w: Where) { Get { Open(where: {operator: And, operands: [$w]}) { title } } }"
    denied(await front.ask("POST", "/v1/graphql", q(text, variables={"w": where})), "analysts-read")


@pytest.mark.parametrize(
    ("query", "variables", "tenant"),
    [
        ('{ Get { Open(tenant: "theirs") { title } } }', None, "theirs"),
        ("query($t: String) { Get { Open(tenant: $t) { title } } }", {"t": "theirs"}, "theirs"),
        ('query($t: String = "theirs") { Get { Open(tenant: $t) { title } } }', {}, "theirs"),
        ('query($t: String = "ours") { Get { Open(tenant: $t) { title } } }', {"t": "theirs"},
         "theirs"),
        ('{ Get { Open(tenant: """theirs""") { title } } }', None, "theirs"),
        ('{ Get { Open(tenant: "th\\u0065irs") { title } } }', None, "theirs"),
        ('{ Get { Open(tenant: "ours") { title } } }', None, "ours"),
    ],
)  # fmt: skip
async def test_a_tenant_is_a_source_of_its_own(
    tmp_path: Path, query: str, variables: Any, tenant: str
) -> None:
    readers = policy(denied_sources=("weaviate://kb/Open/theirs",))
    async with minimal(tmp_path, "weaviate", scripted(Server("low").answer), readers) as front:
        await front.ask("POST", "/v1/graphql", q(query, variables=variables))
        decision = "DENY" if tenant == "theirs" else "ALLOW"
        assert await front.sources() == [(decision, f"weaviate://kb/Open/{tenant}")]


@pytest.mark.parametrize(
    ("body", "name", "status"),
    [
        (q("{ Explore { beacon } }"), "unresolved_source", 403),
        (q("{ __schema { types { name } } }"), "unresolved_source", 403),
        (q('{ __type(name: "Shut") { name } }'), "unresolved_source", 403),
        (q("{ Get { Open { title } } Explore { beacon } }"), "unresolved_source", 403),
        (q("query($t: String) { Get { Open(tenant: $t) { title } } }"), "unresolved_source", 403),
        (q('{ Get { Open(tenant: "a/b") { title } } }'), "unresolved_source", 403),
        (q("{ Get { Open(tenant: 5) { title } } }"), "unresolved_source", 403),
        (q("{ Get { Open(nearObject: {beacon: 5}) { title } } }"), "unresolved_source", 403),
        (q('{ Get { Open(nearText: {moveTo: {objects: [{id: "1"}]}}) { title } } }'),
         "unresolved_source", 403),
        (q('query($t: String = "ours") { Get { Open(tenant: $t) { title } } }',
           variables={"t": None}), "unreadable_request", 400),
        (q('{ Get { Open(tenant: "ours", tenant: "theirs") { title } } }'),
         "unreadable_request", 400),
        (q('{ Get { Open(where: {path: ["a"], path: ["next", "Shut", "a"]}) { title } } }'),
         "unreadable_request", 400),
        (q("query A { Get { Open { title } } } query B { Get { Shut { title } } }",
           operationName="A"), "unreadable_request", 400),
        (q("{ Get { Open { title } } }", operationName="B"), "unreadable_request", 400),
        (q("mutation { Get { Open { title } } }"), "unreadable_request", 400),
        (q("{ Get { Open { title } } } type A { a: Int }"), "unreadable_request", 400),
        (q("{ Get { ...F } } fragment F on A { Open { title } } fragment F on A { Shut { a } }"),
         "unreadable_request", 400),
        (q("{ Get { ...F } }"), "unreadable_request", 400),
        (q("{ Get {"), "unreadable_request", 400),
        (q("{ Get { Open { title } } }", Query="{ Get { Shut { title } } }"),
         "unreadable_request", 400),
        (q("{ Get { Open { title } } }", QUERY="{ Get { Shut { title } } }"),
         "unreadable_request", 400),
        (q("{ Get { Open { title } } }", operationname="x"), "unreadable_request", 400),
        (q("{ Get { Open { title } } }") | {"variable\u017f": {}}, "unreadable_request", 400),
        ({"query": ["x"]}, "unreadable_request", 400),
        (q("{" * 20000), "unreadable_request", 400),
        (q("{" + "a{" * 3000 + "b" + "}" * 3000 + "}"), "unreadable_request", 400),
    ],
)  # fmt: skip
async def test_an_unclear_query_is_refused(
    front: Minimal, body: Any, name: str, status: int
) -> None:
    denied(await front.ask("POST", "/v1/graphql", body), name, status)
    assert front.lines == []


async def test_fragments_in_a_circle_are_refused(front: Minimal) -> None:
    text = "{ Get { ...A } } fragment A on G { ...B ...B } fragment B on G { ...A Open { title } }"
    denied(await front.ask("POST", "/v1/graphql", q(text)), "unreadable_request", 400)


@pytest.mark.parametrize(
    "raw", [b"{}", b"[1]", b'[], "x": []', b'[{"query":"{a}","query":"{b}"}]', b'[{"query":"{a"}]']
)
async def test_a_batch_of_another_form_is_refused(front: Minimal, raw: bytes) -> None:
    denied(await front.ask("POST", "/v1/graphql/batch", raw=raw), "unreadable_request", 400)


# what REST asks for


@pytest.mark.parametrize(
    ("method", "target", "source_id"),
    [
        ("GET", "/v1/objects?class=Shut", "Shut"),
        ("GET", "/v1/objects?cl%61ss=Sh%75t&limit=1", "Shut"),
        ("GET", "/v1/objects?class=shut", "Shut"),
        ("GET", "/v1/objects?class=OpenAlias&tenant=ours", "Shut/ours"),
        ("GET", f"/v1/objects/shut/{ID}", "Shut"),
        ("HEAD", f"/v1/objects/Shut/{ID}", "Shut"),
        ("GET", f"/v1/objects/OpenAlias/{ID}?tenant=theirs", "Shut/theirs"),
        ("GET", "/v1/schema/Shut", "Shut"),
        ("GET", "/v1/schema/openAlias", "Shut"),
        ("GET", "/v1/schema/Shut/tenants/ours", "Shut/ours"),
        ("GET", "/v1/nodes/Shut", "Shut"),
        ("GET", "/v1/aliases/OpenAlias", "Shut"),
    ],
)
async def test_the_collections_of_rest_requests_are_judged(
    front: Minimal, method: str, target: str, source_id: str
) -> None:
    if method == "HEAD":
        line = f"HEAD {target} HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n\r\n"
        assert (await ask(front.port, line.encode())).status == 403
    else:
        denied(await front.ask(method, target), "analysts-read")
    assert await front.sources() == [("DENY", f"weaviate://kb/{source_id}")]
    assert arrived(front) == []


@pytest.mark.parametrize(
    ("method", "target", "name", "status"),
    [
        ("GET", "/v1/objects", "unresolved_source", 403),
        ("GET", "/v1/objects?class=", "unresolved_source", 403),
        ("GET", f"/v1/objects/{ID}", "unresolved_source", 403),
        ("GET", "/v1/objects?class=Open&class=Shut", "unreadable_request", 400),
        ("GET", "/v1/objects?class=Open;class=Shut", "unreadable_request", 400),
        ("GET", "/v1/objects?class=Open%zz", "unreadable_request", 400),
        ("GET", "/v1/objects?class=Open%FF", "unreadable_request", 400),
        ("GET", f"/v1/objects/Op%C3%A9n/{ID}", "unresolved_source", 403),
        ("GET", "/v1/schema/", "unclassified_route", 403),
        ("POST", "/v1/aliases", "route_denied", 403),
        ("PUT", "/v1/aliases/Docs", "route_denied", 403),
        ("POST", "/v1/backups/s3", "route_denied", 403),
        ("POST", "/v1/export/s3", "route_denied", 403),
        ("POST", "/v1/classifications", "route_denied", 403),
        ("POST", "/v1/objects", "write_denied", 403),
        ("DELETE", "/v1/batch/objects", "write_denied", 403),
        ("POST", "/v1/aggregate/Open", "unclassified_route", 403),
    ],
)
async def test_denied_and_unclear_requests_never_arrive(
    front: Minimal, method: str, target: str, name: str, status: int
) -> None:
    denied(await front.ask(method, target, None if method == "GET" else {}), name, status)
    assert front.lines == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"query": ["a"]}, ("ALLOW", "Open")),
        ({"query": ["a"], "tenant": "ours"}, ("ALLOW", "Open/ours")),
        ({"query": ["a"], "where": {"path": ["next", "Shut", "title"]}}, ("DENY", "Shut")),
    ],
)
async def test_a_rest_search_is_judged_with_its_filter(
    front: Minimal, body: Any, expected: tuple[str, str]
) -> None:
    await front.ask("POST", "/v1/search/Open/near-text", body)
    assert await front.sources() == [(expected[0], f"weaviate://kb/{expected[1]}")]


@pytest.mark.parametrize("member", ["Tenant", "WHERE", "returnReferences", "groupBy"])
async def test_a_rest_search_with_an_unknown_member_is_denied(front: Minimal, member: str) -> None:
    body = {"query": ["a"], member: "x"}
    denied(await front.ask("POST", "/v1/search/Open/bm25", body), "unresolved_source")


# names


async def test_lists_show_visible_names_only(front: Minimal) -> None:
    assert (await front.ask("GET", "/v1/schema")).json == {
        "classes": [{"class": "Open"}, {"class": "OpenMore"}]
    }
    assert (await front.ask("GET", "/v1/aliases")).json == {
        "aliases": [{"alias": "Docs", "class": "Open"}]
    }
    [node] = (await front.ask("GET", "/v1/nodes")).json["nodes"]
    assert [each["class"] for each in node["shards"]] == ["Open", "OpenMore"]
    assert "stats" not in node


async def test_a_list_of_tenants_shows_visible_ones_only(tmp_path: Path) -> None:
    readers = policy(denied_sources=("weaviate://kb/Open/theirs",))
    async with minimal(tmp_path, "weaviate", scripted(Server("low").answer), readers) as front:
        answered = await front.ask("GET", "/v1/schema/Docs/tenants")
        assert answered.json == [{"name": "ours"}]
        whole = await front.ask("GET", "/v1/schema/OpenMore/tenants")
        assert len(whole.json) == 2


async def test_an_unlisted_alias_is_judged_by_its_target(tmp_path: Path) -> None:
    def narrow(method: str, target: str, raw: bytes) -> tuple[int, Any]:
        if target == "/v1/aliases":
            return 200, {"aliases": []}
        return Server("low").answer(method, target, raw)

    async with minimal(tmp_path, "weaviate", scripted(narrow), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { OpenAlias { title } } }"))
        denied(answered, "analysts-read")
        assert await front.sources() == [("DENY", "weaviate://kb/Shut")]


@pytest.mark.parametrize("answer", [(403, {}), (500, {}), (200, []), (200, {"class": 1})])
async def test_a_collection_that_cannot_be_looked_up_is_denied(
    tmp_path: Path, answer: tuple[int, Any]
) -> None:
    def failing(_method: str, target: str, _raw: bytes) -> tuple[int, Any]:
        return (200, {"aliases": []}) if target == "/v1/aliases" else answer

    async with minimal(tmp_path, "weaviate", scripted(failing), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        denied(answered, "unresolved_source")


async def test_names_are_cached_for_thirty_seconds(front: Minimal) -> None:
    for _ in range(3):
        await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
    assert (front.lines.count(LOOKUP), front.lines.count("GET /v1/schema/Open")) == (1, 1)
    front.ticking.ahead = 31
    await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
    assert (front.lines.count(LOOKUP), front.lines.count("GET /v1/schema/Open")) == (2, 2)


async def test_a_server_without_aliases_has_none(tmp_path: Path) -> None:
    def old(method: str, target: str, raw: bytes) -> tuple[int, Any]:
        return (404, {}) if target == "/v1/aliases" else Server("low").answer(method, target, raw)

    async with minimal(tmp_path, "weaviate", scripted(old), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        assert answered.status == 200


async def test_aliases_that_cannot_be_looked_up_deny(tmp_path: Path) -> None:
    async with minimal(tmp_path, "weaviate", scripted(lambda *_: (500, {})), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        denied(answered, "unresolved_source")


# writes


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("POST", "/v1/objects", {"class": "Open"}, ("ALLOW", "Open")),
        ("POST", "/v1/objects", {"class": "shut", "tenant": "ours"}, ("DENY", "Shut/ours")),
        ("PUT", f"/v1/objects/Open/{ID}", {"class": "Shut"}, ("DENY", "Shut")),
        ("PATCH", f"/v1/objects/Shut/{ID}", {"class": "Open"}, ("DENY", "Shut")),
        ("DELETE", f"/v1/objects/OpenAlias/{ID}", None, ("DENY", "Shut")),
        ("POST", "/v1/batch/objects", {"objects": [{"class": "Open"}, {"class": "Shut"}]},
         ("DENY", "Shut")),
        ("DELETE", "/v1/batch/objects", {"match": {"class": "Shut"}}, ("DENY", "Shut")),
        ("DELETE", "/v1/batch/objects",
         {"match": {"class": "Open", "where": {"path": ["next", "Shut", "a"]}}}, ("DENY", "Shut")),
        ("POST", "/v1/batch/references", [{"from": f"weaviate://localhost/Shut/{ID}/next"}],
         ("DENY", "Shut")),
        ("POST", f"/v1/objects/Shut/{ID}/references/next", {}, ("DENY", "Shut")),
        ("POST", "/v1/schema", {"class": "Shut"}, ("DENY", "Shut")),
        ("POST", "/v1/schema/Shut/tenants", [], ("DENY", "Shut")),
    ],
)  # fmt: skip
async def test_writes_are_judged_by_every_collection_they_name(
    tmp_path: Path, method: str, target: str, body: Any, expected: tuple[str, str]
) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "weaviate", server, OPEN, writes="allow") as front:
        await front.ask(method, target, body)
        assert await front.sources() == [(expected[0], f"weaviate://kb/{expected[1]}")]


@pytest.mark.parametrize(
    "body",
    [{"class": "Open", "Class": "Shut"}, {"class": "Open", "claſs": "Shut"}, {"Class": "Open"}],
)
async def test_a_member_that_only_a_lenient_reader_takes_is_refused(
    tmp_path: Path, body: Any
) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "weaviate", server, OPEN, writes="allow") as front:
        answered = await front.ask("POST", "/v1/objects", body)
        denied(answered, "unreadable_request", 400)


async def test_a_write_that_changes_names_forgets_the_aliases(tmp_path: Path) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "weaviate", server, OPEN, writes="allow") as front:
        for method in ("GET", "DELETE", "GET"):
            await front.ask(method, "/v1/schema/Open")
        assert front.lines.count(LOOKUP) == 2


# its MCP server


def call(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


async def test_a_tool_of_its_mcp_server_is_judged_by_its_collection(front: Minimal) -> None:
    asked = call("weaviate-query-hybrid", query="x", collection_name="open", tenant_name="ours")
    assert (await front.ask("POST", "/v1/mcp", asked)).json == {"done": True}
    asked = call("weaviate-query-hybrid", query="x", collection_name="Shut")
    answered = await front.ask("POST", "/v1/mcp", asked)
    assert answered.status == 200
    assert answered.json["id"] == 7
    assert answered.json["error"]["code"] == -32001
    assert answered.json["error"]["data"]["decision"] == "DENY"
    assert await front.sources() == [
        ("ALLOW", "weaviate://kb/Open/ours"), ("DENY", "weaviate://kb/Shut"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (call("weaviate-query-hybrid", query="x"), "unresolved_source"),
        (call("weaviate-query-hybrid", query="x", Collection_Name="Open"), "unreadable_request"),
        (call("weaviate-query-hybrid", collection_name="Open",
              filters={"path": ["next", "Shut", "a"]}), "analysts-read"),
        (call("weaviate-logs-fetch"), "unclassified_route"),
        (call("weaviate-objects-upsert", collection_name="Open"), "write_denied"),
        ({**call("weaviate-query-hybrid", collection_name="Open"), "Params": {}},
         "unreadable_request"),
        ({"jsonrpc": "2.0", "id": 7, "method": "resources/read"}, "unclassified_route"),
    ],
)  # fmt: skip
async def test_an_unclear_tool_call_never_arrives(front: Minimal, message: Any, name: str) -> None:
    answered = await front.ask("POST", "/v1/mcp", message)
    assert answered.json["error"]["data"]["policy_name"] == name
    assert "POST /v1/mcp" not in front.lines


async def test_messages_about_no_collection_pass(front: Minimal) -> None:
    assert (await front.ask("GET", "/v1/meta")).status == 200
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert (await front.ask("POST", "/v1/mcp", message)).status == 200
    assert await front.sources() == []


# routes


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
