"""The collections of GraphQL requests, wherever they are named, and the form in which a request is
forwarded. In front of a minimal server (`server.py`)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import weaviate
from graphql import parse

from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.weaviate.front import ID, arrived, client, q
from tests.sidecar.protocols.weaviate.server import Server
from tests.support.proxy import policy


async def test_the_client_reads_through_the_listener_as_from_weaviate(front: Minimal) -> None:
    def read(port: int) -> list[Any]:
        with client(port) as connected:
            return [
                connected.graphql_raw_query("{ Get { Open { title _additional { id } } } }").get,
                connected.graphql_raw_query("{ Aggregate { Open { meta { count } } } }").aggregate,
                connected.collections.exists("Open"),
                connected.collections.use("Open").data.exists(ID),
            ]

    through = await asyncio.to_thread(read, front.port)
    assert through == await asyncio.to_thread(read, front.upstream.port)
    assert set(await front.sources()) == {("ALLOW", "weaviate://kb/Open")}


async def test_a_denied_collection_raises_with_the_reason(front: Minimal) -> None:
    def read() -> None:
        with client(front.port) as connected:
            connected.graphql_raw_query("{ Get { Shut { title } } }")

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
