"""Qdrant's points with their own level, through the sidecar by the real client over gRPC: an agent
that may see up to `medium` gets no other."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from qdrant_client import grpc as g
from qdrant_client import models as m

from tests.sidecar.protocols.qdrant.grpc_front import grpc_front
from tests.sidecar.protocols.qdrant.server import Server
from tests.support.proxy import policy

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/protocols/qdrant/test_grpc_filter.py::test_points_are_withheld_in_every_form_of_response"
)
SYNC = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
READERS = policy(max_sensitivity="medium")
MARKED: dict[str, Any] = {"sensitivity_field": "acl.level", "sensitivity": "low"}
LEVELS = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
V = [1.0, 0.1]
RRF = m.FusionQuery(fusion=m.Fusion.RRF)
BATCH = m.QueryRequest(query=V, with_payload=["text"])
NONE, ACL = m.PayloadSelectorInclude(include=["text"]), m.PayloadSelectorExclude(exclude=["acl"])


@pytest.fixture
def server() -> Server:
    server = Server()
    server.create("docs", *LEVELS)
    server.create("authors", "low", "critical")
    # A group's id is the id of a record in the other collection.
    for point in (1, 2, 3):
        server.local.set_payload("docs", {"by": [1, 2]}, points=[point])
    return server


async def reads(client: Any) -> list[list[Any]]:
    prefetch = [m.Prefetch(query=V), m.Prefetch(query=V, prefetch=m.Prefetch(query=V))]
    [batched] = await client.query_batch_points("docs", [BATCH])
    page, _ = await client.scroll("docs", limit=9)
    return [
        (await client.query_points("docs", query=V, with_payload=True)).points,
        (await client.query_points("docs", query=RRF, prefetch=prefetch, with_payload=NONE)).points,
        batched.points,
        (await client.query_points("docs", query=V, with_payload=ACL)).points,
        (await client.query_points("docs", query=V, with_payload=False)).points,
        page,
        await client.retrieve("docs", list(range(1, 8))),
    ]


@SYNC
async def test_only_visible_points_arrive(tmp_path: Path, server: Server, *, sync: bool) -> None:
    async with grpc_front(tmp_path, server, READERS, **MARKED) as made:
        found = await made.through(reads, sync=sync)
        for points in found:
            assert sorted(each.id for each in points) == [1, 3]
        seen = [[{*(each.payload or {})} for each in points] for points in found]
        whole = {"text", "author", "acl", "by"}
        assert seen[0] == seen[5] == seen[6] == [whole] * 2
        assert seen[1] == seen[2] == [{"text"}] * 2
        assert seen[3] == [whole - {"acl"}] * 2
        assert seen[4] == [set()] * 2
        assert found[0][0].payload["acl"] == {"level": "medium", "owner": "ada"}
        lineage = await made.front.sidecar.lineage(len(found))
        # The condition withheld the others but one, whose level is a list; by ids, there is none.
        assert [each["detail"]["withheld"] for each in lineage] == [1, 1, 1, 1, 1, 1, 5]


@SYNC
async def test_groups_and_what_they_look_up_are_filtered(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    async def script(client: Any) -> list[Any]:
        asked = {"group_by": "by", "query": V, "group_size": 9, "with_payload": False}
        return [await client.query_points_groups("docs", with_lookup="authors", **asked)]

    async with grpc_front(tmp_path, server, READERS, **MARKED) as made:
        [found] = await made.through(script, sync=sync)
        groups = {each.id: each for each in found.groups}
        assert {*groups} == {1, 2}
        for group in groups.values():
            assert sorted(each.id for each in group.hits) == [1, 3]
            assert not any(each.payload for each in group.hits)
        assert groups[1].lookup.payload["text"] == "text of authors 1"
        assert groups[2].lookup is None


@SYNC
async def test_what_proves_nothing_about_points_is_judged_as_critical(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    stored = m.RecommendInput(positive=[V], negative=[2])

    async def script(client: Any) -> list[Any]:
        calls: list[Any] = [
            lambda: client.query_points("docs", query=2),
            lambda: client.query_points("docs", query=m.RecommendQuery(recommend=stored)),
            lambda: client.query_points("docs", prefetch=m.Prefetch(query=2), query=V),
            lambda: client.query_batch_points("docs", [BATCH, m.QueryRequest(query=2)]),
            lambda: client.count("docs"),
            lambda: client.facet("docs", "text"),
            lambda: client.search_matrix_pairs("docs"),
        ]
        for call in calls:
            with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
                await call()
        return []

    async with grpc_front(tmp_path, server, READERS, **MARKED) as made:
        await made.through(script, sync=sync)
        assert made.calls == []
        assert await made.front.sources() == [("DENY", "qdrant://kb/docs")] * 7


@SYNC
async def test_the_older_calls_are_filtered_too(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    every = g.WithPayloadSelector(enable=True)
    vector = g.Vector(dense=g.DenseVector(data=V))
    search = g.SearchPoints(collection_name="docs", vector=V, limit=9, with_payload=every)

    async def script(client: Any) -> list[Any]:
        points = client.grpc_points
        searched = await points.Search(search)
        batch = g.SearchBatchPoints(collection_name="docs", search_points=[search, search])
        both = await points.SearchBatch(batch)
        recommended = await points.Recommend(
            g.RecommendPoints(collection_name="docs", positive_vectors=[vector], limit=9)
        )
        return [searched.result, *(each.result for each in both.result), recommended.result]

    async with grpc_front(tmp_path, server, READERS, **MARKED) as made:
        for found in await made.through(script, sync=sync):
            assert sorted(each.id.num for each in found) == [1, 3]
        conditions = [each[1].filter.must[0].field.key for each in made.served.seen[:1]]
        assert conditions == ["acl.level"]
