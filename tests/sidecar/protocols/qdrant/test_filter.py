"""Qdrant's points with their own level: an agent that may see up to `medium` sees no other,
whatever it asks, and the rest of the response is Qdrant's."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient
from qdrant_client import models as m

from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.qdrant.server import Server
from tests.support.proxy import policy

READERS = policy(max_sensitivity="medium")
MINE = {"key": "acl.level", "match": {"any": ["low", "medium"]}}
LEVELS = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
POINTS = "/collections/docs/points"
V = [1.0, 0.1]


@pytest.fixture
def server() -> Server:
    server = Server()
    server.create("docs", *LEVELS)
    server.create("authors", "low", "critical")
    return server


@pytest.fixture
async def front(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    marked = {"sensitivity_field": "acl.level", "sensitivity": "low"}
    async with minimal(tmp_path, "qdrant", scripted(server.answer), READERS, **marked) as front:
        yield front


def identities(points: list[Any]) -> list[int]:
    return sorted(point["id"] for point in points)


READS: list[tuple[str, dict[str, Any]]] = [
    ("/query", {"query": V}),
    ("/query", {"query": {"nearest": V}}),
    ("/query", {"query": {"fusion": "rrf"}, "prefetch": [{"query": V}, {"query": V}]}),
    ("/query", {"query": V, "filter": {"should": [{"has_id": [1, 2, 3, 4, 5, 6, 7]}]}}),
    ("/query", {"query": {"recommend": {"positive": [V]}}}),
    ("/scroll", {}),
    ("/scroll", {"filter": {"must_not": {"key": "acl.level", "match": {"value": "x"}}}}),
    ("/search", {"vector": V, "limit": 10}),
    ("/recommend", {"positive": [V], "limit": 10}),
    ("/discover", {"target": V, "context": [{"positive": V, "negative": V}], "limit": 10}),
    ("", {"ids": [1, 2, 3, 4, 5, 6, 7]}),
]
FORMS = [None, ["text"], {"exclude": ["acl"]}]


@pytest.mark.parametrize(
    ("verb", "body", "payload"),
    [
        *((*each, payload) for each in READS for payload in FORMS),
        *((*READS[0], payload) for payload in (True, False)),
        *(("/scroll", {}, payload) for payload in (True, False)),
    ],
)
async def test_only_visible_points_are_returned(
    front: Minimal, verb: str, body: dict[str, Any], payload: object
) -> None:
    if payload is not None:
        body = {**body, "with_payload": payload}
    answered = await front.ask("POST", POINTS + verb, body)
    assert answered.status == 200, answered.raw
    result = answered.json["result"]
    points = result if isinstance(result, list) else result["points"]
    assert identities(points) == [1, 3]
    unasked = verb in ("/scroll", "")
    for point in points:
        got = point.get("payload")
        if payload is True or (payload is None and unasked):
            assert got.keys() == {"text", "author", "acl"}
            assert got["acl"].keys() == {"level", "owner"}
        elif payload in (None, False):
            assert got is None
        else:
            assert got.keys() == ({"text"} if payload == ["text"] else {"text", "author"})


async def test_the_lineage_counts_what_was_withheld(front: Minimal) -> None:
    await front.ask("POST", POINTS, {"ids": [1, 2, 4]})
    [lineage] = await front.sidecar.lineage()
    assert lineage["detail"]["withheld"] == 2


async def test_the_condition_is_added_to_the_callers_own(front: Minimal) -> None:
    theirs = {"should": [{"has_id": [1]}], "must": {"has_id": [1, 2]}}
    nested = {"query": V, "filter": {"must": [{"has_id": [1]}]}, "prefetch": {"query": V}}
    body = {"query": V, "filter": theirs, "prefetch": [nested, {"query": V}]}
    await front.ask("POST", f"{POINTS}/query", body)
    assert front.last["filter"] == {"should": [{"has_id": [1]}], "must": [MINE, {"has_id": [1, 2]}]}
    one, two = front.last["prefetch"]
    assert one["filter"] == {"must": [MINE, {"has_id": [1]}]}
    assert one["prefetch"] == [{"query": V, "filter": {"must": [MINE]}}]
    assert two["filter"] == {"must": [MINE]}


async def test_each_request_of_a_batch_is_filtered(front: Minimal) -> None:
    body = {"searches": [{"query": V}, {"query": V, "with_payload": ["text"], "limit": 2}]}
    answered = await front.ask("POST", f"{POINTS}/query/batch", body)
    one, two = answered.json["result"]
    assert identities(one["points"]) == [1, 3]
    assert all("payload" not in point for point in one["points"])
    assert [point["payload"].keys() for point in two["points"]] == [{"text"}]
    assert all(each["filter"] == {"must": [MINE]} for each in front.last["searches"])


@pytest.mark.parametrize("lookup", ["authors", {"collection": "authors", "with_payload": False}])
async def test_groups_and_the_records_that_they_look_up_are_filtered(
    tmp_path: Path, server: Server, lookup: object
) -> None:
    # The group's id is the id of a record in the other collection.
    for point in (1, 2, 3):
        server.local.set_payload("docs", {"by": [1, 2]}, points=[point])
    marked = {"sensitivity_field": "acl.level", "sensitivity": "low"}
    async with minimal(tmp_path, "qdrant", scripted(server.answer), READERS, **marked) as front:
        body = {"query": V, "group_by": "by", "with_lookup": lookup, "group_size": 9}
        answered = await front.ask("POST", f"{POINTS}/query/groups", body)
        groups = {each["id"]: each for each in answered.json["result"]["groups"]}
        assert all(identities(each["hits"]) == [1, 3] for each in groups.values())
        assert groups[1]["lookup"]["id"] == 1
        assert ("payload" in groups[1]["lookup"]) == (lookup == "authors")
        assert "lookup" not in groups[2]
        [lineage, _] = await front.sidecar.lineage(2)
        assert lineage["detail"]["withheld"] == 1


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("query", {"query": 2}),
        ("query", {"query": "6f1f0f7e-0000-0000-0000-000000000000"}),
        ("query", {"query": {"nearest": 2}}),
        ("query", {"query": {"recommend": {"positive": [V, 2]}}}),
        ("query", {"query": {"recommend": [[2]]}}),
        ("query", {"query": {"discover": {"target": V, "context": {"positive": 2}}}}),
        ("query", {"query": {"context": [{"positive": V, "negative": 2}]}}),
        ("query", {"query": {"relevance_feedback": {"target": V, "feedback": [{"example": 2}]}}}),
        ("query", {"query": {"something_new": V}}),
        ("query", {"query": V, "prefetch": {"prefetch": {"query": 2}}}),
        ("query/batch", {"searches": [{"query": V}, {"query": 2}]}),
        ("query/groups", {"query": 2, "group_by": "author"}),
        ("recommend", {"positive": [2], "limit": 1}),
        ("recommend", {"positive": 2, "limit": 1}),
        ("discover", {"target": 2, "limit": 1}),
        ("count", {}),
        ("search/matrix/pairs", {"sample": 10}),
    ],
)
async def test_a_request_that_cannot_be_filtered_is_judged_as_critical(
    front: Minimal, verb: str, body: object
) -> None:
    denied(await front.ask("POST", f"{POINTS}/{verb}", body), "analysts-read")
    assert front.lines in ([], ["GET /aliases"])


async def test_single_points_facets_and_counts_are_judged_as_critical(
    front: Minimal,
) -> None:
    denied(await front.ask("GET", f"{POINTS}/1"), "analysts-read")
    denied(await front.ask("POST", "/collections/docs/facet", {"key": "text"}), "analysts-read")


async def test_an_agent_that_may_see_everything_gets_qdrants_response_unchanged(
    tmp_path: Path, server: Server
) -> None:
    everyone = policy(max_sensitivity="critical")
    async with minimal(
        tmp_path, "qdrant", scripted(server.answer), everyone, sensitivity_field="acl.level"
    ) as front:
        answered = await front.ask("POST", f"{POINTS}/query", {"query": 2})
        assert len(answered.json["result"]["points"]) == len(LEVELS) - 1
        assert front.last == {"query": 2}


@pytest.mark.parametrize(
    "result",
    [
        None, {}, {"points": None}, {"points": [1]}, [{"id": 1}], {"points": {"1": {}}},
        {"groups": []}, "x", {"points": [], "more": [{"id": 1}]},
    ],
)  # fmt: skip
async def test_a_response_in_an_unknown_form_is_withheld(tmp_path: Path, result: object) -> None:
    def answer(_method: str, path: str, _raw: bytes) -> tuple[int, Any]:
        return 200, {"result": {"aliases": []} if path == "/aliases" else result}

    marked = {"sensitivity_field": "acl.level", "sensitivity": "low"}
    async with minimal(tmp_path, "qdrant", scripted(answer), READERS, **marked) as front:
        assert (await front.ask("POST", f"{POINTS}/query", {"query": V})).status == 502


async def test_a_batch_response_with_another_number_of_results_is_withheld(tmp_path: Path) -> None:
    def answer(_method: str, path: str, _raw: bytes) -> tuple[int, Any]:
        return 200, {"result": {"aliases": []} if path == "/aliases" else [{"points": []}]}

    marked = {"sensitivity_field": "acl.level", "sensitivity": "low"}
    async with minimal(tmp_path, "qdrant", scripted(answer), READERS, **marked) as front:
        body = {"searches": [{"query": V}, {"query": V}]}
        assert (await front.ask("POST", f"{POINTS}/query/batch", body)).status == 502


async def test_a_response_without_hidden_points_is_qdrant_s_byte_for_byte(front: Minimal) -> None:
    body = {"filter": {"must": {"has_id": [1]}}}
    answered = await front.ask("POST", f"{POINTS}/scroll", body)
    await asyncio.sleep(0)
    straight = await front.ask("POST", f"{POINTS}/scroll", front.last)
    assert answered.body == straight.body


async def test_the_client_gets_only_visible_points(front: Minimal) -> None:
    def read() -> list[Any]:
        qdrant = QdrantClient(url=f"http://127.0.0.1:{front.port}", check_compatibility=False)
        return [
            qdrant.query_points("docs", query=V, with_payload=["text"]).points,
            qdrant.scroll("docs", limit=10)[0],
            qdrant.retrieve("docs", list(range(1, 8))),
            qdrant.query_points(
                "docs",
                prefetch=m.Prefetch(query=V),
                query=m.FusionQuery(fusion=m.Fusion.RRF),
            ).points,
        ]

    for found in await asyncio.to_thread(read):
        assert sorted(each.id for each in found) == [1, 3]
