"""A LangChain retriever behind a decision: every way of asking it, and a sidecar that is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.load import dumps
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from sluice_guard import Denied, Guard, Unavailable
from tests.deploy.sdk.python.scripted_server import ALLOW, DENY, response, says, serving
from tests.support.ports import free_port

KEY = "slc_" + "s3cret" * 8


class Shelf(BaseRetriever):
    asked: list[str] = Field(default_factory=list)

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        self.asked.append(query)
        return [Document("text")]


class Noted(BaseCallbackHandler):
    def __init__(self) -> None:
        self.starts = 0

    def on_retriever_start(self, *_: Any, **__: Any) -> None:
        self.starts += 1


async def every_way(retriever: BaseRetriever) -> list[Any]:
    """The documents, or the error, of each way to ask."""
    ways = (
        asyncio.to_thread(retriever.invoke, "q"),
        retriever.ainvoke("q"),
        asyncio.to_thread(retriever.batch, ["q", "q"]),
        retriever.abatch(["q", "q"]),
        asyncio.to_thread(lambda: list(retriever.stream("q"))),
        anext(retriever.astream("q")),
    )
    return list(await asyncio.gather(*ways, return_exceptions=True))


async def test_every_way_of_retrieving_asks_first() -> None:
    with serving(says(response(ALLOW))) as server:
        async with Guard(server.url, KEY, "a", "r", timeout=30) as guard:
            shelf = Shelf()
            guarded = guard.retriever(shelf, "kb", "low")
            assert isinstance(guarded, BaseRetriever)
            assert not [each for each in await every_way(guarded) if isinstance(each, Exception)]
            assert len(shelf.asked) == len(server.requests) == 8
            assert all(b'"source_type": "langchain"' in each for each in server.requests)
            assert all(b'"query": "q"' in each for each in server.requests)


@pytest.mark.parametrize("away", [False, True])
async def test_without_an_allow_no_way_reaches_the_retriever(away: bool) -> None:
    with serving(says(response(DENY))) as server:
        url = f"http://127.0.0.1:{free_port()}" if away else server.url
        async with Guard(url, KEY, "a", "r", timeout=30) as guard:
            shelf = Shelf()
            raised = await every_way(guard.retriever(shelf, "kb"))
            assert {type(each) for each in raised} == {Unavailable if away else Denied}
            answered = await every_way(guard.retriever(shelf, "kb", answer=True))
            for each in answered:
                text = str(each)
                assert ("could not be checked" if away else "was denied") in text
            assert shelf.asked == []


def test_callbacks_see_both_retrievals_and_the_key_is_never_shown() -> None:
    with (
        serving(says(response(ALLOW))) as server,
        Guard(server.url, KEY, "a", "r", timeout=30) as guard,
    ):
        guarded = guard.retriever(Shelf(), "kb", "low")
        noted = Noted()
        guarded.invoke("q", config={"callbacks": [noted]})
        assert noted.starts == 2
        assert KEY not in repr(guarded) + dumps(guarded)
