"""Qdrant's own client with `prefer_grpc=True`, sync and async, with only its address changed: it
gets the same as without the sidecar, and the reason of a denial."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from qdrant_client import models as m

from tests.sidecar.protocols.minimal import scripted
from tests.sidecar.protocols.qdrant.front import OPEN
from tests.sidecar.protocols.qdrant.grpc_front import grpc_front, run
from tests.sidecar.protocols.qdrant.grpc_server import GrpcServer
from tests.sidecar.protocols.qdrant.server import VECTORS, Server
from tests.support.fake_control_api import fake_control_api, policy
from tests.support.ports import free_port
from tests.support.scripted_source import data_source
from tests.support.sidecar_process import sidecar_process
from tests.support.waiting import until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/protocols/qdrant/test_grpc_routes.py::test_a_call_and_its_twin_are_judged_alike"
)
SYNC = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
V = [1.0, 0.1]
RRF = m.FusionQuery(fusion=m.Fusion.RRF)
BY_AUTHOR = {"group_by": "author", "query": V}


async def quick_start(client: Any, name: str) -> list[Any]:
    """The quick start of the client's documentation, and every other read."""
    points = [m.PointStruct(id=n, vector=[1.0, n / 10], payload={"n": n}) for n in (1, 2, 3)]
    odd = m.Filter(must=[m.FieldCondition(key="n", match=m.MatchAny(any=[1, 3]))])
    more = m.UpsertOperation(upsert=m.PointsList(points=[m.PointStruct(id=4, vector=V)]))
    return [
        await client.collection_exists(name),
        await client.create_collection(name, vectors_config=VECTORS),
        await client.upsert(name, points),
        await client.batch_update_points(name, [more]),
        await client.query_points(name, query=V, query_filter=odd, with_payload=True),
        await client.query_points(name, query=2, limit=1),
        await client.scroll(name, limit=2),
        *await reads(client, name),
    ]


async def reads(client: Any, name: str) -> list[Any]:
    return [
        await client.query_points(name, query=V, limit=1),
        await client.query_points(name, prefetch=[m.Prefetch(query=V, limit=2)], query=RRF),
        await client.query_batch_points(name, [m.QueryRequest(query=V)] * 2),
        await client.query_points_groups(name, with_lookup="open_more", **BY_AUTHOR),
        await client.scroll(name, limit=1),
        await client.retrieve(name, [1, 2]),
        await client.count(name),
        await client.collection_exists(name),
        (await client.get_collection(name)).status,
        await client.get_collection_aliases(name),
    ]


@SYNC
async def test_the_quick_start_through_a_whole_sidecar_is_that_of_qdrant(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    opened = policy(allowed_sources=("qdrant://kb/open*",), max_sensitivity="high")
    with GrpcServer(server).running() as served:
        async with fake_control_api() as control, data_source(scripted(server.answer)) as upstream:
            control.create_tenant(opened)
            ports = free_port(), free_port()
            kb = {
                "alias": "kb",
                "kind": "qdrant",
                "sensitivity": "low",
                "upstream": f"http://127.0.0.1:{upstream.port}",
                "grpc": f"http://127.0.0.1:{served.port}",
                "listen": f"127.0.0.1:{ports[0]}",
                "grpc_listen": f"127.0.0.1:{ports[1]}",
                "writes": "allow",
            }
            async with sidecar_process(tmp_path, control, sources=[kb]) as made:
                await made.start()
                through = await run(lambda each: quick_start(each, "open_a"), *ports, sync=sync)
                calls = len(served.seen)

                async def denied(client: Any) -> list[Any]:
                    with pytest.raises(Exception, match=r"shut_docs.*allowed_sources"):
                        await client.query_points("shut_docs", query=V)
                    return []

                await run(denied, *ports, sync=sync)
                assert len(served.seen) == calls
                straight = (upstream.port, served.port)
                alone = await run(lambda each: quick_start(each, "open_b"), *straight, sync=sync)
                assert through == alone

                async def recorded() -> bool:
                    return "DENY" in [each["decision"] for each in control.decisions()]

                await until_async("the records are there", recorded)
                denials = [each for each in control.decisions() if each["decision"] == "DENY"]
                assert len(denials) == 1


@SYNC
async def test_the_client_reads_through_the_listener_as_from_qdrant(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    async def script(client: Any) -> list[Any]:
        # The second name is an alias.
        return [*await reads(client, "open_docs"), *await reads(client, "docs")]

    async with grpc_front(tmp_path, server, OPEN) as made:
        through = await made.through(script, sync=sync, headers={"api-key": "secret"})
        assert through == await made.straight(script, sync=sync)
        names = ("open_docs", "open_more")
        assert {*await made.front.sources()} == {("ALLOW", f"qdrant://kb/{name}") for name in names}
        # The look-up of aliases has the credentials of the call.
        [lookup] = [seen for seen in made.front.upstream.seen if seen.target == "/aliases"]
        assert lookup.values("api-key") == ["secret"]
        assert made.served.seen[0][2]["api-key"] == "secret"


REASON = "source `qdrant://kb/shut_docs` is not in `allowed_sources` of policy `analysts-read`"


@SYNC
async def test_a_denied_collection_raises_with_the_reason(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    lookup = m.LookupLocation(collection="open_alias")

    async def script(client: Any) -> list[Any]:
        raised = []
        calls: list[Any] = [
            lambda: client.query_points("shut_docs", query=V),
            lambda: client.query_points("open_docs", query=1, lookup_from=lookup),
            lambda: client.query_points(
                "open_docs",
                prefetch=m.Prefetch(prefetch=m.Prefetch(query=1, lookup_from=lookup), query=V),
                query=RRF,
            ),
            lambda: client.query_points_groups("open_docs", with_lookup="shut_docs", **BY_AUTHOR),
            lambda: client.scroll("open_alias"),
            lambda: client.get_collection("shut_docs"),
            lambda: client.collection_exists("shut_docs"),
        ]
        for call in calls:
            with pytest.raises(grpc.RpcError) as error:
                await call()
            raised.append(error.value)
        return raised

    async with grpc_front(tmp_path, server, OPEN) as made:
        raised = await made.through(script, sync=sync)
        for error in raised:
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED
            assert REASON in str(error)
        decisions = await made.front.sources()
        assert decisions == [("DENY", "qdrant://kb/shut_docs")] * len(raised)
        assert made.calls == []
        [record, *_] = await made.front.sidecar.records()
        metadata = dict([*raised[0].trailing_metadata()])
        [detail] = Status.FromString(metadata["grpc-status-details-bin"]).details
        info = ErrorInfo()
        assert detail.Unpack(info)
        assert info.reason == "analysts-read"
        assert info.metadata["event_id"] == metadata["x-sluice-event-id"]
        assert record["eid"] == info.metadata["event_id"]


@SYNC
async def test_closed_methods_and_unallowed_writes_are_denied_with_a_reason(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    alias = m.CreateAlias(collection_name="shut_docs", alias_name="open_new")
    change = m.CreateAliasOperation(create_alias=alias)
    point = m.PointStruct(id=9, vector=V)

    async def script(client: Any) -> list[Any]:
        raised = []
        calls: list[Any] = [
            lambda: client.update_collection_aliases([change]),
            lambda: client.create_snapshot("open_docs"),
            client.list_full_snapshots,
            lambda: client.create_shard_key("open_docs", "key"),
            lambda: client.upsert("open_docs", [point]),
            lambda: client.delete_collection("open_docs"),
        ]
        for call in calls:
            with pytest.raises(grpc.RpcError) as error:
                await call()
            raised.append(str(error.value.details()))
        return raised

    async with grpc_front(tmp_path, server, OPEN) as made:
        raised = await made.through(script, sync=sync)
        assert ["is closed" in each for each in raised] == [True] * 4 + [False] * 2
        assert all("`writes` is `deny`" in each for each in raised[4:])
        assert made.calls == []
        # A write is recorded under the collection that its message names.
        named = ["qdrant://kb"] * 4 + ["qdrant://kb/open_docs"] * 2
        assert await made.front.sources() == [("DENY", each) for each in named]


@SYNC
async def test_lists_contain_only_visible_collections(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    async def script(client: Any) -> list[Any]:
        return [await client.get_collections(), await client.get_aliases()]

    async with grpc_front(tmp_path, server, OPEN) as made:
        collections, aliases = await made.through(script, sync=sync)
        assert [each.name for each in collections.collections] == ["open_docs", "open_more"]
        assert [each.alias_name for each in aliases.aliases] == ["docs"]


@SYNC
async def test_a_write_is_judged_by_the_collection_in_its_message(
    tmp_path: Path, server: Server, *, sync: bool
) -> None:
    point = m.PointStruct(id=9, vector=V)

    async def script(client: Any) -> list[Any]:
        await client.upsert("open_docs", [point])
        for name in ("shut_docs", "open_alias"):
            with pytest.raises(grpc.RpcError, match="allowed_sources"):
                await client.upsert(name, [point])
            with pytest.raises(grpc.RpcError, match="allowed_sources"):
                await client.delete_collection(name)
        # A name that may change is looked up again.
        await client.create_collection("open_new", vectors_config=VECTORS)
        await client.count("open_new")
        return []

    async with grpc_front(tmp_path, server, OPEN, writes="allow") as made:
        await made.through(script, sync=sync)
        assert made.calls == ["Points/Upsert", "Collections/Create", "Points/Count"]
        assert made.front.lines.count("GET /aliases") == 2
