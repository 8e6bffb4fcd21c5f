"""The real clients opensearch-py and elasticsearch, with only the address changed, read through the
listener what they read from the server. The server is a minimal one."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import elasticsearch
import elasticsearch.helpers
import opensearchpy
import opensearchpy.helpers
import pytest

from tests.sidecar.protocols.minimal import Minimal, minimal
from tests.sidecar.protocols.opensearch.front import READERS, fronting, named_server
from tests.sidecar.protocols.opensearch.server import Server
from tests.support.proxy import policy
from tests.support.scripted_source import Seen


@pytest.fixture
def server() -> Server:
    server = named_server()
    server.create("open_docs", "low", "high", "medium")
    return server


@pytest.fixture
async def front(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    async with fronting(tmp_path, server) as front:
        yield front


def opensearch(port: int) -> opensearchpy.OpenSearch:
    return opensearchpy.OpenSearch([{"host": "127.0.0.1", "port": port}], timeout=10)


def _read(client: Any) -> list[Any]:
    """What an agent reads, by each kind of call."""
    token = client.create_pit(index="open_docs", params={"keep_alive": "1m"})["pit_id"]
    found = [
        client.info(),
        client.ping(),
        client.search(index="open_docs", body={"query": {"match_all": {}}}),
        client.search(index="docs,open_more", q="text", size=2, _source=["text"]),
        client.search(body={"query": {"match_all": {}}, "pit": {"id": token}})["hits"],
        client.msearch(body=[{"index": "open_docs"}, {"query": {"match_all": {}}}]),
        client.get(index="open_docs", id="1"),
        client.exists(index="open_docs", id="1"),
        client.get_source(index="open_docs", id="2"),
        client.mget(body={"docs": [{"_index": "docs", "_id": "1"}]}),
        client.mget(index="open_docs", body={"ids": ["1", "2"]}),
        client.count(index="open_docs"),
        client.indices.exists(index="open_docs"),
        client.indices.get_mapping(index="open_docs"),
        client.cluster.health(),
        client.transport.perform_request(
            "POST", "/_plugins/_sql", body={"query": "SELECT page FROM docs"}
        ),
        client.transport.perform_request(
            "POST", "/_plugins/_ppl", body={"query": "source=open_docs"}
        ),
        sorted(hit["_id"] for hit in opensearchpy.helpers.scan(client, index="open_docs")),
    ]
    client.delete_pit(body={"pit_id": [token]})
    later = client.asynchronous_search.search(body={}, index="open_docs")
    found.append(client.asynchronous_search.get(id=later["id"])["response"])
    client.asynchronous_search.delete(id=later["id"])
    return found


async def test_opensearch_py_reads_through_the_listener_as_from_the_server(front: Minimal) -> None:
    def read(port: int) -> list[Any]:
        client = opensearch(port)
        try:
            return _read(client)
        finally:
            client.close()

    through = await asyncio.to_thread(read, front.port)
    assert through == await asyncio.to_thread(read, front.upstream.port)


async def test_a_denial_is_one_of_the_clients_own_errors(front: Minimal) -> None:
    def read() -> list[Any]:
        client = opensearch(front.port)
        copied = {"source": {"index": "open_docs"}, "dest": {"index": "x"}}
        calls: list[Callable[[], Any]] = [
            lambda: client.search(index="shut_docs", body={}),
            lambda: client.get(index="shut_docs", id="1"),
            lambda: client.search(body={}),
            lambda: client.indices.put_alias(index="open_docs", name="x"),
            lambda: client.reindex(body=copied),
        ]
        found = []
        for call in calls:
            with pytest.raises(opensearchpy.exceptions.AuthorizationException) as caught:
                call()
            found.append(caught.value.status_code)
        client.close()
        return found

    assert await asyncio.to_thread(read) == [403] * 5


async def test_opensearch_py_lists_only_visible_indices(front: Minimal) -> None:
    def read() -> list[Any]:
        client = opensearch(front.port)
        found = [
            set(client.indices.get_alias(index="*")),
            set(client.indices.get_mapping()),
            {row["index"] for row in client.cat.indices(format="json")},
        ]
        client.close()
        return found

    assert await asyncio.to_thread(read) == [{"open_docs", "open_more"}] * 3


async def test_opensearch_py_writes_where_writes_are_allowed(
    tmp_path: Path, server: Server
) -> None:
    def write(port: int) -> Any:
        client = opensearch(port)
        client.indices.create(index="open_new", body={"mappings": {"properties": {}}})
        done = opensearchpy.helpers.bulk(
            client, [{"_index": "open_new", "_id": str(n), "text": "x"} for n in range(3)]
        )
        client.index(index="open_new", id="9", body={"text": "y"}, refresh=True)
        client.indices.refresh(index="open_new")
        client.indices.delete(index="open_new")
        client.close()
        return done

    async with fronting(tmp_path, server, writes="allow") as front:
        assert await asyncio.to_thread(write, front.port) == (3, [])
        assert set(await front.sources()) == {("ALLOW", "opensearch://kb/open_new")}


@pytest.fixture
async def elastic(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    """The same server, with the header that Elasticsearch's client expects in every response."""

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        method, target, _ = seen.line.split(" ")
        status, answer = server.answer(method, target, seen.body)
        raw = b"" if method == "HEAD" else json.dumps(answer).encode()
        media = "application/vnd.elasticsearch+json;compatible-with=9"
        head = (
            f"HTTP/1.1 {status} X\r\nX-Elastic-Product: Elasticsearch\r\nContent-Type: {media}\r\n"
        )
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(raw) + raw)

    async with minimal(tmp_path, "opensearch", script, READERS) as front:
        yield front


async def test_the_elasticsearch_client_reads_through_the_listener(elastic: Minimal) -> None:
    def read(port: int) -> list[Any]:
        with elasticsearch.Elasticsearch(f"http://127.0.0.1:{port}", request_timeout=10) as client:
            pit = {"id": client.open_point_in_time(index="open_docs", keep_alive="1m")["id"]}
            scanned = elasticsearch.helpers.scan(client, index="open_docs", query={})
            return [
                client.search(pit=pit).body["hits"],
                client.info().body,
                client.search(index="open_docs", query={"match_all": {}}, size=2).body["hits"],
                client.search(
                    index="docs", knn={"field": "vector", "query_vector": [1.0], "k": 2}
                ).body["hits"],
                client.msearch(
                    searches=[{"index": "open_docs"}, {"query": {"match_all": {}}}]
                ).body,
                client.get(index="open_docs", id="1").body,
                client.mget(index="open_docs", ids=["1", "2"]).body,
                client.count(index="open_docs", query={"match_all": {}}).body,
                client.esql.query(query="FROM open_docs | LIMIT 1").body,
                client.sql.query(query="SELECT page FROM open_docs", format="json").body,
                set(client.indices.get_alias(index="open_d*").body),
                sorted(hit["_id"] for hit in scanned),
            ]

    through = await asyncio.to_thread(read, elastic.port)
    direct = await asyncio.to_thread(read, elastic.upstream.port)
    assert through == direct


async def test_a_denial_is_one_of_the_elasticsearch_clients_own_errors(elastic: Minimal) -> None:
    def read() -> int:
        address = f"http://127.0.0.1:{elastic.port}"
        with elasticsearch.Elasticsearch(address, request_timeout=10) as client:
            client.info()
            # The sidecar's own response has no Elasticsearch header.
            with pytest.raises(elasticsearch.ApiError) as caught:
                client.search(index="shut_docs", query={"match_all": {}})
            return caught.value.meta.status

    assert await asyncio.to_thread(read) == 403


async def test_the_client_sees_only_visible_documents(tmp_path: Path, server: Server) -> None:
    def read(port: int) -> list[Any]:
        client = opensearch(port)
        hits = opensearchpy.helpers.scan(client, index="open_docs", query={"_source": ["text"]})
        found = [
            [hit["_source"] for hit in hits],
            client.search(index="open_docs", body={"size": 5})["hits"]["total"]["value"],
        ]
        client.close()
        return found

    marked = {"sensitivity_field": "meta.level", "sensitivity": "low"}
    readers = policy(max_sensitivity="medium")
    async with fronting(tmp_path, server, readers, **marked) as front:
        found = await asyncio.to_thread(read, front.port)
        assert found == [[{"text": "text of open_docs"}] * 2, 2]
