"""What the official clients do when a call gets the status 14 (`UNAVAILABLE`) from the sidecar,
here because its policy set is stale: how often each calls again by itself, for how long, and what
its user is told. The table of `sidecar/protocols/README.md` has the same."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import weaviate
from grpc import RpcError
from pinecone.errors.exceptions import PineconeConnectionError
from pymilvus import MilvusClient, MilvusException
from qdrant_client import QdrantClient
from weaviate.exceptions import WeaviateQueryError

from tests.architecture.tree import ROOT
from tests.sidecar.protocols.milvus.front import OPEN as OPEN_MILVUS
from tests.sidecar.protocols.milvus.lite import running_lite
from tests.sidecar.protocols.pinecone.front import OPEN as OPEN_PINECONE
from tests.sidecar.protocols.pinecone.grpc_front import in_front_of_calls
from tests.sidecar.protocols.pinecone.quick_start import opened
from tests.sidecar.protocols.pinecone.server import Server as Pinecone
from tests.sidecar.protocols.qdrant.front import OPEN as OPEN_QDRANT
from tests.sidecar.protocols.qdrant.grpc_front import grpc_front as qdrant_front
from tests.sidecar.protocols.qdrant.server import Server as Qdrant
from tests.sidecar.protocols.weaviate.front import OPEN as OPEN_WEAVIATE
from tests.sidecar.protocols.weaviate.grpc_front import grpc_front as weaviate_front
from tests.sidecar.protocols.weaviate.server import Server as Weaviate
from tests.support.proxy import Sidecar, listening, sidecar, source

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_outages.py::test_an_outage_is_answered_with_503_and_recorded_by_its_name"
)
STALE = "the policy set can't be used"


class Client(NamedTuple):
    """A client that has connected, of which `search` is a search that a policy allows."""

    sidecar: Sidecar
    search: Callable[[], Any]


@asynccontextmanager
async def qdrant(tmp_path: Path) -> AsyncIterator[Client]:
    server = Qdrant()
    server.create("open_docs", "low", "high")
    async with qdrant_front(tmp_path, server, OPEN_QDRANT) as made:
        port = made.front.port
        client = QdrantClient(
            host="127.0.0.1", port=port, grpc_port=port, prefer_grpc=True, check_compatibility=False
        )  # fmt: skip
        try:
            search = lambda: client.query_points("open_docs", query=[1.0, 0.1])  # noqa: E731
            yield Client(made.front.sidecar, search)
        finally:
            client.close()


@asynccontextmanager
async def pinecone(tmp_path: Path) -> AsyncIterator[Client]:
    async with in_front_of_calls(tmp_path, Pinecone("low"), OPEN_PINECONE) as called:
        index = opened(called.address)
        named = {"top_k": 3, "namespace": "open"}
        yield Client(called.front.sidecar, lambda: index.query(vector=[1.0, 0.5], **named))


@asynccontextmanager
async def weaviate_client(tmp_path: Path) -> AsyncIterator[Client]:
    async with weaviate_front(tmp_path, Weaviate("low"), OPEN_WEAVIATE) as front:
        client = await asyncio.to_thread(
            weaviate.connect_to_custom,
            http_host="127.0.0.1", http_port=front.port, http_secure=False,
            grpc_host="127.0.0.1", grpc_port=front.grpc_port, grpc_secure=False,
        )  # fmt: skip
        try:
            yield Client(front.sidecar, client.collections.use("Open").query.fetch_objects)
        finally:
            client.close()


@asynccontextmanager
async def milvus(tmp_path: Path) -> AsyncIterator[Client]:
    with running_lite(tmp_path) as lite:
        async with (
            sidecar(tmp_path, OPEN_MILVUS) as made,
            listening(made, source(lite.port, "milvus")) as port,
        ):
            client = await asyncio.to_thread(MilvusClient, uri=f"http://127.0.0.1:{port}")
            try:
                yield Client(made, lambda: client.search("docs", [[1.0, 0.1]], limit=3))
            finally:
                await asyncio.to_thread(client.close)


# The module that sleeps between two calls, where it can be told not to.
KNOWN: dict[str, tuple[Any, str, int, type[Exception]]] = {
    "qdrant-client": (qdrant, "", 1, RpcError),
    "weaviate-client": (weaviate_client, "weaviate.retry", 6, WeaviateQueryError),
    "pinecone": (pinecone, "", 6, PineconeConnectionError),
    "pymilvus": (milvus, "pymilvus.decorators", 76, MilvusException),
}


@pytest.mark.parametrize("name", KNOWN)
async def test_a_client_calls_again_as_often_as_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    connected, module, calls, error_type = KNOWN[name]
    monkeypatch.setattr("weaviate.connect.v4.PYPI_PACKAGE_URL", "http://127.0.0.1:9/")
    async with connected(tmp_path) as client:
        assert await asyncio.to_thread(client.search)
        before = len(await client.sidecar.decisions())
        client.sidecar.enforcer.policies.freshness.expire("of a test")
        slept: list[float] = []
        if module:
            clock = SimpleNamespace(**{**vars(time), "sleep": slept.append})
            monkeypatch.setattr(f"{module}.time", clock)
        began = time.monotonic()
        with pytest.raises(error_type) as raised:
            await asyncio.to_thread(client.search)
        took = time.monotonic() - began
        monkeypatch.undo()
        made = (await client.sidecar.decisions())[before:]
    assert STALE in str(raised.value)
    assert [each[1] for each in made] == ["policy_set_stale"] * calls
    # The Rust client draws its pauses, each of 0.1 s or more.
    seconds = f"{sum(slept):.0f} s" if module else "at once" if calls == 1 else "at random"
    assert module or took >= 0.1 * (calls - 1)
    readme = (ROOT / "sidecar/protocols/README.md").read_text()
    [row] = [line for line in readme.splitlines() if re.match(rf"\| `{name}` [0-9.]+ \|", line)]
    _, _, told_calls, told_seconds, told_error, _ = (each.strip() for each in row.split("|"))
    assert (told_calls, told_seconds.partition(",")[0]) == (str(calls), seconds)
    assert error_type.__name__ in told_error
