"""LangChain's and LlamaIndex's vector stores over gRPC, with only their addresses changed: they
find the same as without the sidecar, and raise with the reason of a denial."""

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deploy.sdk.python.framework_environment import python_with
from tests.sidecar.protocols.milvus.front import OPEN as OPEN_MILVUS
from tests.sidecar.protocols.milvus.lite import running_lite
from tests.sidecar.protocols.pinecone.front import OPEN as OPEN_PINECONE
from tests.sidecar.protocols.pinecone.grpc_front import in_front_of_calls
from tests.sidecar.protocols.pinecone.server import Server as Pinecone
from tests.sidecar.protocols.qdrant import grpc_front as qdrant_front
from tests.sidecar.protocols.qdrant.front import OPEN as OPEN_QDRANT
from tests.sidecar.protocols.qdrant.server import Server as Qdrant
from tests.sidecar.protocols.vector_stores import quick_starts
from tests.sidecar.protocols.weaviate import grpc_front as weaviate_front
from tests.sidecar.protocols.weaviate.front import OPEN as OPEN_WEAVIATE
from tests.sidecar.protocols.weaviate.server import Server as Weaviate
from tests.support.proxy import listening, sidecar, source

Ports = tuple[int, int]


class Store(NamedTuple):
    """A sidecar in front of a store whose writes it allows."""

    through: Ports
    """The sidecar's ports, for REST and for gRPC."""
    direct: Ports
    opened: str
    """The collection or namespace that the agent may use, as it ends the id of its source, and the
    one that it may not."""
    shut: str
    sources: Callable[[], Awaitable[list[tuple[str, str]]]]
    calls: Callable[[], list[str]]
    """The methods of gRPC that reached the store."""


@asynccontextmanager
async def qdrant(tmp_path: Path) -> AsyncIterator[Store]:
    server = Qdrant()
    server.create("shut_docs", "low")
    async with qdrant_front.grpc_front(tmp_path, server, OPEN_QDRANT, writes="allow") as made:
        front = made.front
        direct = (front.upstream.port, made.served.port)
        names = ("open_texts", "shut_docs")
        yield Store((front.port,) * 2, direct, *names, front.sources, lambda: made.calls)


@asynccontextmanager
async def weaviate(tmp_path: Path) -> AsyncIterator[Store]:
    server = Weaviate("low")
    async with weaviate_front.grpc_front(tmp_path, server, OPEN_WEAVIATE, writes="allow") as made:
        through, direct = (made.port, made.grpc_port), (made.upstream.port, made.upstream_grpc_port)
        yield Store(through, direct, "Open", "Shut", made.sources, lambda: made.served.names)


@asynccontextmanager
async def pinecone(tmp_path: Path) -> AsyncIterator[Store]:
    server = Pinecone("low")
    async with in_front_of_calls(tmp_path, server, OPEN_PINECONE, writes="allow") as made:
        front, served = made.front, made.upstream
        direct = (front.upstream.port, served.port)
        yield Store(
            (front.port,) * 2, direct, "open", "shut", front.sources, lambda: served.methods
        )


@asynccontextmanager
async def milvus(tmp_path: Path) -> AsyncIterator[Store]:
    folder = tmp_path / "lite"
    folder.mkdir()
    with running_lite(folder) as lite:
        async with (
            sidecar(tmp_path, OPEN_MILVUS) as made,
            listening(made, source(lite.port, "milvus", writes="allow")) as port,
        ):

            async def sources() -> list[tuple[str, str]]:
                return [(each[0], each[2]) for each in await made.decisions()]

            ports = (port,) * 2, (lite.port,) * 2
            names = ("default/open_texts", "default/shut_texts")
            yield Store(*ports, *names, sources, lambda: lite.calls)


# LangChain's for Milvus is tested beside the client that it shares with the project's lock.
CASES = [
    *itertools.product((qdrant, weaviate, pinecone), sorted(quick_starts.FRAMEWORKS)),
    (milvus, "llama_index"),
]
STORES = pytest.mark.parametrize(("store", "framework"), CASES)
ELSEWHERE = {"milvus": "llama_milvus"}
"""The environment of a store that has not that of the others."""
GREETINGS = {"milvus": {"Connect", "ShowCollections", "DescribeAlias"}}
"""The methods that are called before anything is asked of a collection."""


class ProgramFailed(Exception):
    """the message is what the program wrote to its standard error"""


async def found(store: Any, framework: str, ports: Ports, name: str, home: Path) -> list[Any]:
    """What a quick start finds with the store at these ports."""
    python = python_with(ELSEWHERE.get(store.__name__, "vector_stores"))
    program = await asyncio.create_subprocess_exec(
        python, "-W", "ignore", quick_starts.__file__, framework, store.__name__,
        *map(str, ports), name.rpartition("/")[2],
        # Neither its own files nor its telemetry leave the folder of the test.
        cwd=home, env={**os.environ, "HOME": str(home), "HTTPS_PROXY": "http://127.0.0.1:9",
                       "NO_PROXY": "127.0.0.1", "LANGSMITH_TRACING": "false"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await program.communicate()
    if program.returncode:
        raise ProgramFailed(errors.decode())
    shown: list[Any] = json.loads(output.splitlines()[-1])
    return shown


# The methods that write and search, of each store.
METHODS = {
    "qdrant": {"Points/Upsert", "Points/Query"},
    "weaviate": {"BatchObjects", "Search"},
    "pinecone": {"Upsert", "Query"},
    "milvus": {"Upsert", "Search"},
}


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/qdrant/test_grpc_routes.py::test_a_call_and_its_twin_are_judged_alike"
)
@STORES
async def test_a_quick_start_finds_the_same_as_without_the_sidecar(
    tmp_path: Path, store: Any, framework: str
) -> None:
    async with store(tmp_path) as made:
        direct = await found(store, framework, made.direct, made.opened, tmp_path)
        alone = made.calls()[:]
        through = await found(store, framework, made.through, made.opened, tmp_path)
        assert through == direct
        assert METHODS[store.__name__] <= {*made.calls()[len(alone) :]}
        decided = await made.sources()
    assert decided
    assert {*decided} == {("ALLOW", f"{store.__name__}://kb/{made.opened}")}


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/qdrant/test_grpc_routes.py::test_a_call_and_its_twin_are_judged_alike"
)
@STORES
async def test_a_denied_collection_raises_with_the_reason(
    tmp_path: Path, store: Any, framework: str
) -> None:
    async with store(tmp_path) as made:
        source = f"{store.__name__}://kb/{made.shut}"
        with pytest.raises(ProgramFailed, match=f"source `{source}` is (not )?in `.*_sources`"):
            await found(store, framework, made.through, made.shut, tmp_path)
        assert {*await made.sources()} == {("DENY", source)}
        assert {*made.calls()} <= GREETINGS.get(store.__name__, set())
