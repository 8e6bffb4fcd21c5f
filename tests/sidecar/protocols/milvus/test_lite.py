"""Milvus' own client, sync and async, through the sidecar to Milvus Lite's server over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus
from pymilvus import AnnSearchRequest, AsyncMilvusClient, MilvusClient, RRFRanker

from policies.definitions.model import Policy
from tests.sidecar.protocols.milvus.front import MARKED, MINE, OPEN, QUERY, READERS, SEARCH, q
from tests.sidecar.protocols.milvus.lite import Lite, rest, running_lite
from tests.sidecar.protocols.minimal import minimal, scripted
from tests.sidecar.protocols.ticking import Ticking
from tests.support.proxy import Sidecar, listening, sidecar, source


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lite]:
    with running_lite(tmp_path_factory.mktemp("lite")) as made:
        yield made


class Front:
    """A listener in front of a Milvus Lite."""

    def __init__(self, port: int, made: Sidecar, ticking: Ticking) -> None:
        self.uri = f"http://127.0.0.1:{port}"
        self.sidecar = made
        self.ticking = ticking

    async def sources(self) -> list[tuple[str, str]]:
        return [(each[0], each[2]) for each in await self.sidecar.decisions()]


@asynccontextmanager
async def fronting(
    lite: Lite, tmp_path: Path, *policies: Policy, **changes: Any
) -> AsyncIterator[Front]:
    ticking = Ticking()
    async with (
        sidecar(tmp_path, *policies) as made,
        listening(made, source(lite.port, "milvus", **changes), clock=ticking.clock) as port,
    ):
        lite.calls.clear()
        yield Front(port, made, ticking)


def ids(found: Any) -> list[int]:
    return [each["id"] for each in found]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_routes.py::"
    "test_a_request_is_judged_by_the_collection_behind_its_name"
)
async def test_the_client_reads_through_the_listener_as_from_milvus(
    lite: Lite, tmp_path: Path
) -> None:
    def read(uri: str) -> list[Any]:
        client = MilvusClient(uri=uri)
        found = client.search("docs", [[1.0, 0.1], [0.1, 1.0]], limit=3, output_fields=["text"])
        pairs = [AnnSearchRequest([[1.0, 0.1]], name, {}, limit=3) for name in ("one", "two")]
        read = [
            client.has_collection("open_docs"),
            client.describe_collection("docs"),
            client.get_collection_stats("open_docs"),
            client.get_load_state("open_docs"),
            client.list_indexes("open_docs"),
            [list(map(dict, hits)) for hits in found],
            [list(map(dict, hits)) for hits in client.hybrid_search(
                "open_pairs", pairs, RRFRanker(), limit=3, output_fields=["level"])],
            list(client.query("docs", filter="id > 2", output_fields=["*"])),
            list(client.query("docs", output_fields=["count(*)"])),
            list(client.get("docs", ids=[1, 2])),
            client.search("docs", [[1.0, 0.1]], limit=2, partition_names=["_default"])[0].ids,
            [ids(page) for page in pages(client.query_iterator("docs", batch_size=3))],
            [page.ids() for page in pages(client.search_iterator(
                "docs", [[1.0, 0.1]], batch_size=3))],
            client.describe_alias("docs"),
            client.list_aliases("open_docs"),
        ]  # fmt: skip
        client.close()
        return read

    async with fronting(lite, tmp_path, OPEN) as front:
        through = await asyncio.to_thread(read, front.uri)
        assert through == await asyncio.to_thread(read, f"http://127.0.0.1:{lite.port}")
        assert set(await front.sources()) == {
            ("ALLOW", "milvus://kb/default/open_docs"),
            ("ALLOW", "milvus://kb/default/open_pairs"),
            ("ALLOW", "milvus://kb/default/open_docs/_default"),
        }


def pages(iterator: Any) -> Iterator[Any]:
    while page := iterator.next():
        yield page
    iterator.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_routes.py::"
    "test_a_request_is_judged_by_the_collection_behind_its_name"
)
async def test_the_async_client_reads_through_the_listener_too(lite: Lite, tmp_path: Path) -> None:
    async def read(uri: str) -> list[Any]:
        client = AsyncMilvusClient(uri=uri)
        found = await client.search("docs", [[1.0, 0.1]], limit=3, output_fields=["text"])
        read = [
            list(map(dict, found[0])),
            list(await client.query("docs", filter="id > 2")),
            list(await client.get("docs", ids=[1])),
        ]
        with pytest.raises(grpc.RpcError, match="`denied_sources`"):
            await AsyncMilvusClient(uri=front.uri).search("shut_docs", [[1.0, 0.1]])
        await client.close()
        return read

    async with fronting(lite, tmp_path, OPEN) as front:
        assert await read(front.uri) == await read(f"http://127.0.0.1:{lite.port}")


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_routes.py::"
    "test_a_request_is_judged_by_the_collection_behind_its_name"
)
async def test_a_denied_collection_raises_with_the_reason(lite: Lite, tmp_path: Path) -> None:
    def read(uri: str) -> None:
        client, other = MilvusClient(uri=uri), MilvusClient(uri=uri, db_name="other")
        denied: list[Callable[[], Any]] = [
            lambda: client.search("shut_docs", [[1.0, 0.1]]),
            lambda: client.query("open_alias", filter="id > 0"),
            lambda: client.search("docs", [[1.0, 0.1]], partition_names=["theirs"]),
            lambda: client.describe_collection("shut_docs"),
            lambda: other.query("open_docs", filter="id > 0"),
        ]
        for each in denied:
            with pytest.raises(grpc.RpcError, match="`denied_sources`"):
                each()
        closed: list[Callable[[], Any]] = [
            lambda: client.alter_alias("shut_docs", "docs"),
            lambda: client.create_database("mine"),
            client.list_users,
        ]
        for each in closed:
            with pytest.raises(grpc.RpcError, match="is closed"):
                each()
        with pytest.raises(grpc.RpcError, match="`writes` is `deny`"):
            client.insert("open_docs", [{"id": 99, "vector": [1.0, 1.0]}])
        client.close()
        other.close()

    async with fronting(lite, tmp_path, OPEN) as front:
        await asyncio.to_thread(read, front.uri)
        assert await front.sources() == [
            ("DENY", "milvus://kb/default/shut_docs"),
            ("DENY", "milvus://kb/default/shut_docs"),
            ("DENY", "milvus://kb/default/open_docs/theirs"),
            ("DENY", "milvus://kb/default/shut_docs"),
            ("DENY", "milvus://kb/other/open_docs"),
            *[("DENY", "milvus://kb")] * 3,
            # The client first asks for the fields.
            ("ALLOW", "milvus://kb/default/open_docs"),
            ("DENY", "milvus://kb/default/open_docs"),
        ]
        assert set(lite.calls) <= {"Connect", "GetVersion", "DescribeAlias", "DescribeCollection"}
        assert lite.calls.count("DescribeCollection") == 1


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_routes.py::"
    "test_a_request_is_judged_by_the_collection_behind_its_name"
)
async def test_lists_show_visible_names_only(lite: Lite, tmp_path: Path) -> None:
    def read(uri: str) -> list[Any]:
        client = MilvusClient(uri=uri)
        found = [client.list_databases(), client.list_collections(),
                 client.list_partitions("open_docs")]  # fmt: skip
        client.close()
        return [sorted(each) for each in found]

    async with fronting(lite, tmp_path, OPEN) as front:
        assert await asyncio.to_thread(read, front.uri) == [
            ["default"], ["open_docs", "open_pairs"], ["_default"],
        ]  # fmt: skip


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_routes.py::"
    "test_a_request_is_judged_by_the_collection_behind_its_name"
)
async def test_an_alias_that_changed_is_followed_after_half_a_minute(
    lite: Lite, tmp_path: Path
) -> None:
    async with fronting(lite, tmp_path, OPEN) as front:
        client = await asyncio.to_thread(MilvusClient, uri=front.uri)
        lite.client.create_alias("open_docs", "changing")
        try:
            assert await asyncio.to_thread(client.get, "changing", ids=[1])
            lite.client.alter_alias("shut_docs", "changing")
            front.ticking.ahead = 31
            with pytest.raises(grpc.RpcError, match="`denied_sources`"):
                await asyncio.to_thread(client.get, "changing", ids=[1])
        finally:
            lite.client.drop_alias("changing")
            client.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_filter.py::"
    "test_hidden_entities_are_withheld_or_judged_at_critical"
)
async def test_the_client_gets_visible_entities_only(lite: Lite, tmp_path: Path) -> None:
    def read(uri: str, name: str) -> list[Any]:
        client = MilvusClient(uri=uri)
        vector = "vector" if name == "open_docs" else "one"
        found = client.search(
            name, [[1.0, 0.1], [0.1, 1.0]], limit=7, anns_field=vector, output_fields=["id"]
        )
        rows = client.query(name, filter="id > 0", output_fields=["id"])
        # The level was requested for the sidecar alone, and is not in what the agent gets.
        assert all(each.keys() == {"id"} for each in rows)
        assert all(hit["entity"].keys() <= {"id"} for hits in found for hit in hits)
        whole = client.query(name, filter="id > 0 or id < 0", output_fields=["*"])
        read = [
            *(sorted(hits.ids) for hits in found),
            ids(rows),
            ids(whole),
            ids(client.get(name, ids=[1, 2, 3])),
            ids([each for page in pages(client.query_iterator(name, batch_size=2))
                 for each in page]),
        ]  # fmt: skip
        if name == "open_pairs":
            pairs = [AnnSearchRequest([[1.0, 0.1]], each, {}, limit=7) for each in ("one", "two")]
            read.append(sorted(client.hybrid_search(name, pairs, RRFRanker(), limit=7)[0].ids))
        client.close()
        return read

    for field, name in (
        ("level", "open_docs"), ("level", "open_pairs"), ("acl.level", "open_pairs"),
    ):  # fmt: skip
        settings = MARKED | {"sensitivity_field": field}
        folder = tmp_path / field / name
        folder.mkdir(parents=True)
        async with fronting(lite, folder, READERS, **settings) as front:
            for found in await asyncio.to_thread(read, front.uri, name):
                assert found == [1, 3], (field, name, found)
            client = await asyncio.to_thread(MilvusClient, uri=front.uri)
            for critical in (
                {"filter": "true) or (true"}, {"output_fields": ["count(*)"]},
            ):  # fmt: skip
                with pytest.raises(grpc.RpcError, match="`critical` is above"):
                    await asyncio.to_thread(client.query, name, **critical)
            client.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_routes.py::"
    "test_a_request_is_judged_by_the_collection_behind_its_name"
)
async def test_the_client_writes_where_it_may(lite: Lite, tmp_path: Path) -> None:
    def write(uri: str) -> list[Any]:
        client = MilvusClient(uri=uri)
        client.create_collection("open_new", dimension=2)
        client.insert("open_new", [{"id": n, "vector": [1.0, n / 10]} for n in range(3)])
        client.upsert("open_new", [{"id": 0, "vector": [0.0, 1.0], "text": "new"}])
        client.delete("open_new", ids=[1])
        client.flush("open_new")
        read = ids(client.query("open_new", filter="id >= 0"))
        client.rename_collection("open_new", "open_newer")
        forbidden: list[Callable[[], Any]] = [
            lambda: client.create_collection("shut_new", dimension=2),
            lambda: client.rename_collection("open_newer", "shut_new"),
            lambda: client.delete("open_alias", ids=[1]),
        ]
        for each in forbidden:
            with pytest.raises(grpc.RpcError, match="`denied_sources`"):
                each()
        client.drop_collection("open_newer")
        client.close()
        return read

    async with fronting(lite, tmp_path, OPEN, writes="allow") as front:
        assert await asyncio.to_thread(write, front.uri) == [0, 2]
    assert sorted(lite.client.list_collections()) == ["open_docs", "open_pairs", "shut_docs"]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_filter.py::"
    "test_hidden_entities_are_withheld_or_judged_at_critical"
)
async def test_rest_over_the_same_server_has_the_same_answers(lite: Lite, tmp_path: Path) -> None:
    script = scripted(rest(lite.client))
    async with minimal(tmp_path, "milvus", script, READERS, **MARKED) as front:
        for path, more in ((QUERY, {"filter": "id > 0"}), (SEARCH, {"outputFields": ["text"]})):
            answered = await front.ask("POST", path, q("docs", **more))
            assert answered.status == 200, answered.raw
            assert sorted(ids(answered.json["data"])) == [1, 3]
            assert MINE in front.last["filter"]
        assert set(await front.sources()) == {("ALLOW", "milvus://kb/default/open_docs")}


class Lengths(Embeddings):
    """Vectors that are made of the texts' lengths."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(each) for each in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0, len(text) / 100]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/milvus/test_filter.py::"
    "test_hidden_entities_are_withheld_or_judged_at_critical"
)
async def test_langchain_s_store_reads_through_the_listener(lite: Lite, tmp_path: Path) -> None:
    def store(uri: str, name: str) -> Milvus:
        return Milvus(Lengths(), name, connection_args={"uri": uri}, auto_id=True)

    def fill() -> None:
        for name in ("open_chain", "shut_chain"):
            made = store(f"http://127.0.0.1:{lite.port}", name)
            levels = [{"level": each} for each in ("low", "high", "medium")]
            made.add_texts(["a", "bb", "ccc"], metadatas=levels)

    def read(uri: str) -> list[str]:
        found = store(uri, "open_chain").similarity_search("a", k=3)
        with pytest.raises(grpc.RpcError, match="`denied_sources`"):
            store(uri, "shut_chain")
        with pytest.raises(grpc.RpcError, match="`writes` is `deny`"):
            store(uri, "open_chain").add_texts(["d"], metadatas=[{"level": "low"}])
        return sorted(each.page_content for each in found)

    await asyncio.to_thread(fill)
    try:
        medium = replace(OPEN, max_sensitivity="medium")
        async with fronting(lite, tmp_path, OPEN) as front:
            assert await asyncio.to_thread(read, front.uri) == ["a", "bb", "ccc"]
        async with fronting(lite, tmp_path, medium, **MARKED) as front:
            assert await asyncio.to_thread(read, front.uri) == ["a", "ccc"]
    finally:
        for name in ("open_chain", "shut_chain"):
            lite.client.drop_collection(name)
