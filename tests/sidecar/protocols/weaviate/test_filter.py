"""Weaviate's objects with a level of their own: an agent cleared up to `medium` sees no other, and
a search that can't be filtered is judged as if it returned everything."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import weaviate

from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.weaviate.front import arrived, client, q
from tests.sidecar.protocols.weaviate.server import Server
from tests.support.proxy import policy

READERS = policy(max_sensitivity="medium")
MARKED = {"sensitivity_field": "level", "sensitivity": "low"}
LEVELS = ("low", "high", "medium", None, "Low", "low or critical", "critical")
READS = ("low", "medium")
SEEN = ["text of Open 1", "text of Open 3"]


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    server = scripted(Server(*LEVELS).answer)
    async with minimal(tmp_path, "weaviate", server, READERS, **MARKED) as front:
        yield front


@pytest.mark.parametrize(
    ("selected", "keys"),
    [
        ("title", {"title"}),
        ("title level", {"title", "level"}),
        ("title level @include(if: true)", {"title"}),
        ("title x: level", {"title", "x"}),
        ("title _additional { id distance }", {"title", "_additional"}),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "(limit: 10, nearVector: {vector: [1, 2]})",
        '(where: {operator: Like, path: ["title"], valueText: "text"})',
    ],
)
async def test_only_visible_objects_are_returned(
    front: Minimal, selected: str, keys: set[str], arguments: str
) -> None:
    text = f"{{ Get {{ Open{arguments} {{ {selected} }} }} }}"
    answered = await front.ask("POST", "/v1/graphql", q(text))
    found = answered.json["data"]["Get"]["Open"]
    assert [each["title"] for each in found] == SEEN
    assert all(each.keys() == keys for each in found)


async def test_the_condition_is_combined_with_the_caller_s_own(front: Minimal) -> None:
    where = '{operator: Or, operands: [{operator: Like, path: ["title"], valueText: "text"}]}'
    await front.ask("POST", "/v1/graphql", q(f"{{ Get {{ Open(where: {where}) {{ title }} }} }}"))
    marks = [f'{{path: ["level"] operator: Equal valueText: "{each}"}}' for each in READS]
    mine = f"{{operator: Or operands: [{' '.join(marks)}]}}"
    assert _bare(f"(where: {{operator: And operands: [{mine} {where}]}})") in _bare(
        front.last["query"]
    )


def _bare(text: str) -> str:
    return "".join(text.replace(",", " ").split())


async def test_objects_that_only_match_the_condition_by_words_are_withheld(front: Minimal) -> None:
    # A text tokenized by words matches `low` if it is `low or critical`.
    await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
    [lineage] = await front.sidecar.lineage()
    assert lineage["detail"]["withheld"] == 2


async def test_each_request_of_a_batch_is_filtered(front: Minimal) -> None:
    batch = [
        q("{ Get { Open { title } } }"),
        q("{ Get { y: OpenMore { title level } Open { title } } }"),
    ]
    one, two = (await front.ask("POST", "/v1/graphql/batch", batch)).json
    assert [each["title"] for each in one["data"]["Get"]["Open"]] == SEEN
    assert [each["level"] for each in two["data"]["Get"]["y"]] == ["low", "medium"]
    assert [each["title"] for each in two["data"]["Get"]["Open"]] == SEEN


@pytest.mark.parametrize(
    "query",
    [
        "{ Aggregate { Open { meta { count } } } }",
        "{ Get { Open { title } } Aggregate { Open { meta { count } } } }",
        "{ Get { Open { next { ... on Shut { title } } } } }",
        "{ Get { Open { _additional { group { count } } } } }",
        '{ Get { Open(nearObject: {id: "1"}) { title } } }',
        '{ Get { Open(hybrid: {query: "a", searches: []}) { title } } }',
        '{ Get { Open(after: "1") { title } } }',
        '{ Get { Open(groupBy: {path: "title"}) { title } } }',
        "query($w: Where) { Get { Open(where: $w) { title } } }",
        # Another property under the level's name.
        "{ Get { Open { level: title } } }",
        "{ Get { Open { level: _additional { id } } } }",
        "{ Get { Open { ... { level: title } } } }",
        "{ Get { ...F } } fragment F on GetObjectsObj { Open { title } }",
        # GraphQL merges two fields with one key.
        "{ Get { x: Open { title } x: Open { level: title } } }",
        "{ Get { Open { title } } Get { Open { level: title } } }",
        "{ Get: Get { Open { title } } Get { Open { level: title } } }",
        "{ Got: Get { Open { title } } }",
    ],
)
async def test_a_search_that_cannot_be_filtered_is_judged_at_critical(
    front: Minimal, query: str
) -> None:
    body = q(query, variables={"w": {"operator": "Like", "path": ["title"]}})
    denied(await front.ask("POST", "/v1/graphql", body), "analysts-read")
    assert arrived(front) == []


async def test_a_level_inside_another_property_is_not_filtered(tmp_path: Path) -> None:
    server = scripted(Server(*LEVELS).answer)
    marked = {"sensitivity_field": "acl.level", "sensitivity": "low"}
    async with minimal(tmp_path, "weaviate", server, READERS, **marked) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        denied(answered, "analysts-read")


async def test_a_list_of_objects_shows_only_visible_ones(front: Minimal) -> None:
    answered = await front.ask("GET", "/v1/objects?class=Open")
    assert [each["properties"]["title"] for each in answered.json["objects"]] == SEEN
    assert answered.json["totalResults"] == 2
    [lineage] = await front.sidecar.lineage()
    assert lineage["detail"]["withheld"] == 5


async def test_single_objects_and_rest_searches_are_judged_as_critical(
    front: Minimal,
) -> None:
    denied(await front.ask("GET", "/v1/objects/Open/00000001"), "analysts-read")
    answered = await front.ask("POST", "/v1/search/Open/bm25", {"query": ["a"]})
    denied(answered, "analysts-read")


async def test_an_agent_cleared_for_everything_is_not_filtered(tmp_path: Path) -> None:
    server = scripted(Server(*LEVELS).answer)
    everyone = policy(max_sensitivity="critical")
    async with minimal(tmp_path, "weaviate", server, everyone, **MARKED) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        assert len(answered.json["data"]["Get"]["Open"]) == len(LEVELS)
        assert "where" not in front.last["query"]


def looked_up(target: str) -> tuple[int, Any] | None:
    if target == "/v1/aliases":
        return 200, {"aliases": []}
    return (200, {"class": "Open"}) if target == "/v1/schema/Open" else None


@pytest.mark.parametrize(
    "answer",
    [
        [], "x", {"data": []}, {"data": {"Get": []}}, {"data": {"Get": {"Open": {}}}},
        {"data": {"Get": {"Open": [1]}}}, {"data": {"Get": {"Shut": [{"level": "low"}]}}},
        {"data": {"Get": {"Open": []}, "Aggregate": {}}}, {"data": {}, "extensions": {}},
    ],
)  # fmt: skip
async def test_an_unknown_response_is_not_passed_on(tmp_path: Path, answer: Any) -> None:
    def strange(_method: str, target: str, _raw: bytes) -> tuple[int, Any]:
        return looked_up(target) or (200, answer)

    async with minimal(tmp_path, "weaviate", scripted(strange), READERS, **MARKED) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        assert answered.status == 502


@pytest.mark.parametrize("answer", [{"data": None, "errors": [{"message": "m"}]}, {"errors": []},
                                    {"data": {"Get": {"Open": None}}}])  # fmt: skip
async def test_a_response_without_objects_passes(tmp_path: Path, answer: Any) -> None:
    def failing(_method: str, target: str, _raw: bytes) -> tuple[int, Any]:
        return looked_up(target) or (200, answer)

    async with minimal(tmp_path, "weaviate", scripted(failing), READERS, **MARKED) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        assert answered.json == answer


async def test_the_client_sees_only_visible_objects(front: Minimal) -> None:
    def read() -> Any:
        with client(front.port) as connected:
            return connected.graphql_raw_query("{ Get { Open { title } } }").get["Open"]

    assert [each["title"] for each in await asyncio.to_thread(read)] == SEEN
    assert weaviate.__version__
