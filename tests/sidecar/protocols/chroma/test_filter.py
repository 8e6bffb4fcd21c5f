"""Chroma's records with their own level, in a real server: an agent that may see up to `medium`
sees no other, whatever it asks, and the rest of the response is Chroma's."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import chromadb
import pytest

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.chroma.filter import filter_records
from sidecar.protocols.protocol import FetchedResponse
from sidecar.protocols.shared.responses import DocumentLevels
from tests.sidecar.protocols.chroma.front import Front, fronting
from tests.support.proxy import policy

LEVELS = ["low", "high", "medium", None, "Low", "critical", "low"]
MINE = ["id0", "id2", "id6"]
READERS = policy(max_sensitivity="medium")
MARKS = DocumentLevels(("level",), ("low", "medium"))


@pytest.fixture
async def marked(chroma: int, tmp_path: Path) -> AsyncIterator[Front]:
    marks = {"sensitivity_field": "level", "sensitivity": "low"}
    async with fronting(chroma, tmp_path, READERS, **marks) as made:

        def fill() -> None:
            direct = chromadb.HttpClient(host="127.0.0.1", port=chroma, database=made.database)
            collection: Any = direct.create_collection("open_marked", embedding_function=None)
            for at, level in enumerate(LEVELS):
                collection.add(
                    ids=[f"id{at}"],
                    embeddings=[[1.0, float(at)]],
                    documents=[f"text of {at}"],
                    metadatas=[{"n": at} if level is None else {"n": at, "level": level}],
                )

        await asyncio.to_thread(fill)
        yield made


def collection(front: Front, port: int) -> Any:
    client = chromadb.HttpClient(host="127.0.0.1", port=port, database=front.database)
    return client.get_collection("open_marked", embedding_function=None)


def plainly(found: Any) -> str:
    return json.dumps(found, sort_keys=True, default=str)


@pytest.mark.deep(stands_in="test_visible_records_are_returned_whole_and_in_parallel_arrays")
@pytest.mark.parametrize("include", [None, ["documents"], [], ["metadatas", "embeddings", "uris"]])
@pytest.mark.parametrize("where", [None, {"n": {"$gte": 0}}, {"level": {"$ne": "x"}}])
async def test_get_returns_exactly_the_visible_records(
    marked: Front, include: list[str] | None, where: dict[str, Any] | None
) -> None:
    asked: dict[str, Any] = {} if include is None else {"include": include}

    def read() -> tuple[Any, Any]:
        through = collection(marked, marked.port).get(where=where, **asked)
        plain = collection(marked, marked.chroma).get(ids=MINE, where=where, **asked)
        return through, plain

    through, plain = await asyncio.to_thread(read)
    assert through["ids"] == MINE
    assert plainly(through) == plainly(plain)
    lineage = await marked.sidecar.lineage()
    assert lineage[-1]["outcome"] == "completed"


async def test_visible_records_are_returned_whole_and_in_parallel_arrays(marked: Front) -> None:
    def read() -> Any:
        through, plain = (collection(marked, port) for port in (marked.port, marked.chroma))
        for include in (["documents"], ["metadatas", "embeddings"]):
            got = through.get(include=include)
            assert plainly(got) == plainly(plain.get(ids=MINE, include=include))
            assert got["ids"] == MINE
        return through.query(
            query_embeddings=[[1.0, 0.0], [1.0, 6.0]], n_results=7, include=["documents"]
        )

    found = await asyncio.to_thread(read)
    assert [sorted(each) for each in found["ids"]] == [MINE, MINE]
    for ids, documents in zip(found["ids"], found["documents"], strict=True):
        assert documents == [f"text of {each[2:]}" for each in ids]
    assert found["metadatas"] is None


async def test_a_hidden_record_is_not_returned_by_its_id(marked: Front) -> None:
    def read() -> Any:
        return collection(marked, marked.port).get(ids=["id1", "id3", "id5"])

    assert (await asyncio.to_thread(read))["ids"] == []


async def test_the_callers_condition_can_not_undo_ours(marked: Front) -> None:
    wheres: list[dict[str, Any]] = [
        {"$or": [{"level": "critical"}, {"n": {"$gte": 0}}]},
        {"level": {"$in": ["high", "critical"]}},
        {"$or": [{"level": {"$nin": ["low"]}}, {"level": {"$in": ["low"]}}]},
    ]

    def read(where: dict[str, Any]) -> Any:
        return collection(marked, marked.port).get(where=where)

    for where in wheres:
        found = await asyncio.to_thread(read, where)
        assert set(found["ids"]) <= set(MINE)
    # Not only checked afterwards: the query that Chroma got excludes the others.
    assert b"text of 5" not in marked.relay.answered


def fetched(body: object) -> FetchedResponse:
    return FetchedResponse(200, "OK", [], json.dumps(body).encode())


def test_a_response_that_ignores_the_condition_is_filtered_and_counted() -> None:
    answer = {
        "ids": [["a", "b", "c"], ["d"]],
        "documents": [["A", "B", "C"], ["D"]],
        "metadatas": [[{"level": "low"}, {"level": "high"}, None], [{"level": "medium"}]],
        "distances": [[1, 2, 3], [4]],
        "uris": None,
        "embeddings": None,
        "include": ["documents", "metadatas", "distances"],
    }
    passed = filter_records(MARKS, fetched(answer), nested=True, added=True)
    assert passed.withheld == 2
    assert json.loads(passed.body) == {
        **answer,
        "ids": [["a"], ["d"]],
        "documents": [["A"], ["D"]],
        "metadatas": None,
        "distances": [[1], [4]],
        "include": ["documents", "distances"],
    }


@pytest.mark.parametrize(
    ("answer", "nested"),
    [
        ({"ids": ["a"], "documents": ["A"], "metadatas": None}, False),
        ({"ids": ["a"], "documents": ["A", "B"], "metadatas": [{"level": "low"}]}, False),
        ({"ids": [], "documents": ["A"], "metadatas": []}, False),
        ({"documents": ["A"], "metadatas": [{"level": "low"}]}, False),
        ({"ids": [["a"]], "documents": [["A"], ["B"]], "metadatas": [[{"level": "low"}]]}, True),
        ({"ids": [["a"]], "documents": [["A"]], "metadatas": [None]}, True),
        ({"ids": ["a"], "metadatas": [{"level": "low"}], "snippets": ["A"]}, False),
        ({"ids": {"a": 1}, "metadatas": [{"level": "low"}]}, False),
        ([{"id": "a"}], False),
    ],
)
def test_a_response_of_unknown_form_is_withheld(answer: Any, nested: bool) -> None:
    with pytest.raises(UpstreamFailed):
        filter_records(MARKS, fetched(answer), nested=nested, added=False)
