"""LangChain's retriever over Chroma, with only the port changed: it finds the same as without the
sidecar, and gets the reason for a denial."""

import asyncio
from typing import Any

import chromadb
import pytest
from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings

from tests.sidecar.protocols.chroma.front import TENANT, Front


class Counting(Embeddings):
    """A text's length and words, in place of a model."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float(len(text)), float(text.count(" "))]


def found(front: Front, port: int, collection: str, *, creates: bool = False) -> list[Any]:
    """What a retriever finds by each of its two calls. `creates` is LangChain's default: it opens
    the collection with get-or-create."""
    client = chromadb.HttpClient("127.0.0.1", port, tenant=TENANT, database=front.database)
    if creates:
        store = Chroma(client=client, collection_name=collection, embedding_function=Counting())
    else:
        store = Chroma(collection, Counting(), client=client, create_collection_if_not_exists=False)
    retriever = store.as_retriever(search_kwargs={"k": 2, "filter": {"page": 1}})
    return [*retriever.invoke("text of"), *store.similarity_search_with_score("text of", k=1)]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/chroma/test_reads.py::test_an_allowed_answer_is_chromas_byte_for_byte"
)
@pytest.mark.parametrize("creates", [False, True])
async def test_a_retriever_finds_the_same_as_without_the_sidecar(
    front: Front, *, creates: bool
) -> None:
    through = await asyncio.to_thread(found, front, front.port, "open_docs", creates=creates)
    assert through == await asyncio.to_thread(found, front, front.chroma, "open_docs")
    assert through[0].page_content == "text of open_docs"
    decisions = await front.sidecar.decisions()
    assert {(each[0], each[2]) for each in decisions} == {("ALLOW", front.source("open_docs"))}


@pytest.mark.deep(stands_in="test_a_missing_collection_is_denied_with_a_remedy")
@pytest.mark.parametrize("creates", [False, True])
async def test_a_retriever_gets_the_reason_of_a_denial(front: Front, *, creates: bool) -> None:
    with pytest.raises(Exception, match="`allowed_sources`"):
        await asyncio.to_thread(found, front, front.port, "shut_docs", creates=creates)
    decisions = await front.sidecar.decisions()
    assert {(each[0], each[2]) for each in decisions} == {("DENY", front.source("shut_docs"))}
    assert not any(
        "shut_docs" in line or front.ids["shut_docs"] in line for line in front.relay.lines
    )


async def test_opening_a_collection_does_not_change_it(front: Front) -> None:
    """Judged and recorded as a read: the other members of get-or-create are not forwarded."""
    before = front.direct("GET", f"{front.names}/open_docs")
    body = {
        "name": "open_docs",
        "get_or_create": True,
        "metadata": {"changed": True},
        "configuration": {"hnsw": {"ef_search": 7}},
        "schema": None,
    }
    answered = await front.ask("POST", front.names, body)
    assert (answered.status, answered.json) == before
    assert front.direct("GET", f"{front.names}/open_docs") == before
    assert {line.split()[0] for line in front.relay.lines} == {"GET"}
    assert [each[::2] for each in await front.sidecar.decisions()] == [
        ("ALLOW", front.source("open_docs"))
    ]


async def test_a_missing_collection_is_denied_with_a_remedy(front: Front) -> None:
    with pytest.raises(Exception, match="create_collection_if_not_exists=False") as raised:
        await asyncio.to_thread(found, front, front.port, "open_new", creates=True)
    for reason in ("`open_new` does not exist", "create it beforehand", "`writes: allow`"):
        assert reason in str(raised.value)
    assert await front.sidecar.decisions() == [("DENY", "write_denied", front.source("open_new"))]
    assert front.direct("GET", f"{front.names}/open_new")[0] == 404


async def test_a_forbidden_name_gets_the_same_denial_whether_or_not_it_exists(front: Front) -> None:
    denials = [
        await front.ask("POST", front.names, {"name": name, "get_or_create": True})
        for name in ("shut_docs", "shut_new")
    ]
    assert {each.status for each in denials} == {403}
    reasons = [each.json["decision"]["reason"] for each in denials]
    [first, second] = [each.replace("shut_new", "shut_docs") for each in reasons]
    assert first == second
    assert front.relay.lines == []


@pytest.mark.parametrize(
    "name", [".", "..", "open/b", "by-id", "open_docs/../shut_docs", "open%2e", "open\\b"]
)
async def test_an_odd_name_is_refused_and_not_forwarded(front: Front, name: str) -> None:
    answered = await front.ask("POST", front.names, {"name": name, "get_or_create": True})
    assert answered.status in (400, 403)
    assert front.relay.lines == []


@pytest.mark.parametrize("flag", [None, False, 1, "true", [True]])
async def test_creating_with_any_other_flag_is_denied_as_a_write(
    front: Front, flag: object
) -> None:
    body = {"name": "open_docs", "get_or_create": flag}
    answered = await front.ask("POST", front.names, body)
    assert answered.status == 403
    decisions = await front.sidecar.decisions()
    assert decisions == [("DENY", "write_denied", front.source("open_docs"))]
    assert front.relay.lines == []
