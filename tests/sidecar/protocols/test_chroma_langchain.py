"""LangChain's retriever over Chroma, of which only the port was changed: it finds what it finds
without the sidecar, and hears why it may not look."""

import asyncio
from typing import Any

import chromadb
import pytest
from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings

from tests.sidecar.protocols.conftest import TENANT, Front


class Counting(Embeddings):
    """A text's length and words, in place of a model."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float(len(text)), float(text.count(" "))]


def found(front: Front, port: int, collection: str) -> list[Any]:
    """What a retriever finds, by whichever of its two calls."""
    client = chromadb.HttpClient("127.0.0.1", port, tenant=TENANT, database=front.database)
    store = Chroma(collection, Counting(), client=client, create_collection_if_not_exists=False)
    retriever = store.as_retriever(search_kwargs={"k": 2, "filter": {"page": 1}})
    return [*retriever.invoke("text of"), *store.similarity_search_with_score("text of", k=1)]


async def test_a_retriever_finds_what_it_finds_without_the_sidecar(front: Front) -> None:
    through = await asyncio.to_thread(found, front, front.port, "open_docs")
    assert through == await asyncio.to_thread(found, front, front.chroma, "open_docs")
    assert through[0].page_content == "text of open_docs"
    decisions = await front.sidecar.decisions()
    assert {(each[0], each[2]) for each in decisions} == {("ALLOW", front.source("open_docs"))}


async def test_a_retriever_hears_why_it_may_not_look(front: Front) -> None:
    with pytest.raises(Exception, match="`allowed_sources`"):
        await asyncio.to_thread(found, front, front.port, "shut_docs")
    decisions = await front.sidecar.decisions()
    assert {(each[0], each[2]) for each in decisions} == {("DENY", front.source("shut_docs"))}
    assert not any(
        "shut_docs" in line or front.ids["shut_docs"] in line for line in front.relay.lines
    )
