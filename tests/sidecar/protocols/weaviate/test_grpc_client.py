"""The official client over gRPC, through a sidecar in front of a minimal Weaviate: its answers are
those of Weaviate, and a denial shows its reason."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import weaviate
from weaviate.classes.generate import GenerativeConfig
from weaviate.classes.query import Filter, GroupBy, MetadataQuery, QueryReference, Rerank
from weaviate.exceptions import (
    InsufficientPermissionsError,
    WeaviateBaseError,
    WeaviateGRPCUnavailableError,
)

from tests.sidecar.protocols.weaviate.front import ID, OPEN
from tests.sidecar.protocols.weaviate.grpc_front import GrpcFront, grpc_front
from tests.sidecar.protocols.weaviate.server import Server
from tests.support.proxy import policy


@pytest.fixture(autouse=True)
def _no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    # The client's checks at the start ask PyPI whether it is outdated.
    monkeypatch.setattr("weaviate.connect.v4.PYPI_PACKAGE_URL", "http://127.0.0.1:9/")


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[GrpcFront]:
    async with grpc_front(tmp_path, Server("low", "low"), OPEN) as front:
        yield front


def connected(port: int, grpc_port: int) -> weaviate.WeaviateClient:
    return weaviate.connect_to_custom(
        http_host="127.0.0.1", http_port=port, http_secure=False,
        grpc_host="127.0.0.1", grpc_port=grpc_port, grpc_secure=False,
    )  # fmt: skip


async def through_and_direct(
    front: GrpcFront, ask: Callable[[weaviate.WeaviateClient], Any]
) -> tuple[Any, Any]:
    def run(port: int, grpc_port: int) -> Any:
        with connected(port, grpc_port) as client:
            return ask(client)

    return (
        await asyncio.to_thread(run, front.port, front.grpc_port),
        await asyncio.to_thread(run, front.upstream.port, front.upstream_grpc_port),
    )


def shown(value: Any) -> Any:
    """A result of the client in a form to compare: some of its classes have none."""
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    if isinstance(value, dict):
        return {str(key): shown(each) for key, each in value.items()}
    own = type(value).__module__ == "weaviate.collections.classes.internal"
    return shown(vars(value)) if own and hasattr(value, "__dict__") else str(value)


def queries(client: weaviate.WeaviateClient) -> list[Any]:
    docs = client.collections.use("Open")
    query, generate = docs.query, docs.generate
    vector = [0.1, 0.2]
    model = GenerativeConfig.openai(model="m")
    found = [
        client.is_ready(),
        query.fetch_objects(limit=5, filters=Filter.by_property("title").like("text")),
        query.fetch_object_by_id(ID),
        query.near_text("a", limit=1, return_metadata=MetadataQuery(distance=True)),
        query.near_vector(vector, return_properties=["title"]),
        query.near_object(ID),
        query.bm25("a", rerank=Rerank(prop="title")),
        query.hybrid("a", vector=vector, return_references=QueryReference(link_on="more")),
        query.near_text("a", group_by=GroupBy(prop="title", objects_per_group=2,
                                              number_of_groups=2)),
        query.fetch_objects(
            filters=Filter.by_ref("more").by_property("title").equal("text")
            & Filter.by_id().contains_any([ID])
        ),
        generate.near_text("a", single_prompt="{title}", grouped_task="x",
                           generative_provider=model),
        docs.aggregate.over_all(total_count=True),
        sorted(docs.tenants.get()),
        [each.properties for each in docs.iterator()],
    ]  # fmt: skip
    return [shown(each) for each in found]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_the_same_question_is_judged_alike_over_rest_graphql_and_grpc"
)
async def test_the_client_gets_the_answers_that_weaviate_gives(front: GrpcFront) -> None:
    through, direct = await through_and_direct(front, queries)
    assert through == direct
    sources = {each for each in await front.sources() if each[1] != "weaviate://kb/Open"}
    assert sources == {("ALLOW", "weaviate://kb/OpenMore")}


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_the_same_question_is_judged_alike_over_rest_graphql_and_grpc"
)
async def test_the_asynchronous_client_gets_the_same(front: GrpcFront) -> None:
    async def run(port: int, grpc_port: int) -> str:
        client = weaviate.use_async_with_local("127.0.0.1", port=port, grpc_port=grpc_port)
        async with client:
            found = await client.collections.use("Open").query.near_text("a")
            with pytest.raises(InsufficientPermissionsError if denies else WeaviateBaseError):
                await client.collections.use(missing).query.near_text("a")
            return repr(found)

    missing, denies = "Shut", True
    through = await run(front.port, front.grpc_port)
    missing, denies = "Missing", False
    assert through == await run(front.upstream.port, front.upstream_grpc_port)


def _reference(docs: Any) -> Any:
    return docs.query.near_text("a", return_references=QueryReference(link_on="next"))


# Each reads `Shut`, or what it leads to.
DENIED: list[Callable[[weaviate.WeaviateClient], Any]] = [
    lambda client: client.collections.use("Shut").query.fetch_objects(),
    lambda client: client.collections.use("OpenAlias").query.bm25("a"),
    lambda client: client.collections.use("Shut").aggregate.over_all(total_count=True),
    lambda client: client.collections.use("Shut").tenants.get(),
    lambda client: _reference(client.collections.use("Open")),
    lambda client: client.collections.use("Open").query.fetch_objects(
        filters=Filter.by_ref("next").by_property("title").equal("x")
    ),
    lambda client: client.collections.use("Open").query.fetch_objects(
        filters=Filter.by_ref_multi_target("either", target_collection="Shut")
        .by_property("title").equal("x")
    ),
    lambda client: client.collections.use("Open").query.fetch_objects(
        return_references=QueryReference.MultiTarget(link_on="either", target_collection="Shut")
    ),
]  # fmt: skip


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_every_field_that_names_a_collection_or_tenant_is_judged"
)
async def test_a_denied_collection_raises_with_the_reason_and_is_not_called(
    front: GrpcFront,
) -> None:
    def ask() -> list[str]:
        said = []
        with connected(front.port, front.grpc_port) as client:
            for denied in DENIED:
                with pytest.raises(WeaviateBaseError) as raised:
                    denied(client)
                said.append(str(raised.value))
        return said

    for said in await asyncio.to_thread(ask):
        assert "source `weaviate://kb/Shut` is not in `allowed_sources`" in said
    assert front.served.calls == []
    denials = [each for each in await front.sources() if each[0] == "DENY"]
    assert denials == [("DENY", "weaviate://kb/Shut")] * len(DENIED)


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_every_field_that_names_a_collection_or_tenant_is_judged"
)
async def test_a_tenant_is_a_source_of_its_own(tmp_path: Path) -> None:
    readers = policy(denied_sources=("weaviate://kb/Open/theirs",))

    def ask(port: int, grpc_port: int) -> Any:
        with connected(port, grpc_port) as client:
            docs = client.collections.use("Open")
            assert docs.with_tenant("ours").query.fetch_objects().objects
            with pytest.raises(InsufficientPermissionsError, match="theirs"):
                docs.with_tenant("theirs").query.fetch_objects()
            with pytest.raises(WeaviateBaseError, match="theirs"):
                docs.tenants.get_by_names(["ours", "theirs"])
            return list(docs.tenants.get())

    async with grpc_front(tmp_path, Server("low"), readers) as front:
        assert await asyncio.to_thread(ask, front.port, front.grpc_port) == ["ours"]
        assert front.served.names == ["Search", "TenantsGet"]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_every_field_that_names_a_collection_or_tenant_is_judged"
)
@pytest.mark.parametrize("writes", ["deny", "allow"])
async def test_batches_are_written_where_writes_are_allowed(tmp_path: Path, writes: str) -> None:
    def write(port: int, grpc_port: int) -> list[Any]:
        with connected(port, grpc_port) as client:
            docs: Any = client.collections.use("Open")
            shut: Any = client.collections.use("Shut")
            where: Any = Filter.by_property("title").equal("a")
            calls: list[Callable[[], Any]] = [
                lambda: docs.data.insert_many([{"title": "a"}, {"title": "b"}]).has_errors,
                lambda: docs.data.delete_many(where).matches,
                lambda: shut.data.insert_many([{"title": "a"}]).has_errors,
            ]
            done: list[Any] = []
            for call in calls:
                try:
                    done.append(call())
                except WeaviateBaseError as error:
                    done.append("write_denied" if "writes, and" in str(error) else "denied")
            return done

    async with grpc_front(tmp_path, Server("low"), OPEN, writes=writes) as front:
        done = await asyncio.to_thread(write, front.port, front.grpc_port)
        if writes == "deny":
            assert (done, front.served.names) == (["write_denied"] * 3, [])
        else:
            assert (done, front.served.names) == (
                [False, 2, "denied"], ["BatchObjects", "BatchDelete"],
            )  # fmt: skip


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_every_field_that_names_a_collection_or_tenant_is_judged"
)
@pytest.mark.parametrize("kind", ["dynamic", "fixed_size"])
async def test_a_batch_of_the_client_may_write_several_collections(
    tmp_path: Path, kind: str
) -> None:
    def write(port: int, grpc_port: int, other: str) -> Any:
        with connected(port, grpc_port) as client:
            opened: Any = getattr(client.batch, kind)()
            with opened as batch:
                batch.add_object("Open", {"title": "a"})
                batch.add_object(other, {"title": "b"})
                batch.add_reference(ID, "Open", "more", ID)
            results = client.batch.results
            assert not results.refs.has_errors
            return len(results.objs.uuids), [each.message for each in client.batch.failed_objects]

    async with grpc_front(tmp_path, Server("low"), OPEN, writes="allow") as front:
        ports = front.port, front.grpc_port
        assert await asyncio.to_thread(write, *ports, "OpenMore") == (2, [])
        [(method, message, _)] = front.served.calls
        assert method == "BatchObjects"
        assert [each.collection for each in message.objects] == ["Open", "OpenMore"]
        # All objects of the message fail, and the client raises nothing.
        written, failures = await asyncio.to_thread(write, *ports, "Shut")
        assert (written, len(failures), front.served.names) == (0, 2, ["BatchObjects"])
        assert all("`weaviate://kb/Shut` is not in `allowed_sources`" in each for each in failures)
        assert ("DENY", "weaviate://kb/Shut") in await front.sources()


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_filter.py::test_only_visible_objects_are_returned"
)
async def test_the_client_sees_only_visible_objects(tmp_path: Path) -> None:
    levels = ("low", "high", "medium", None, "low or critical")
    marked: dict[str, Any] = {"sensitivity_field": "level", "sensitivity": "low"}

    def ask(port: int, grpc_port: int) -> Any:
        with connected(port, grpc_port) as client:
            query = client.collections.use("Open").query
            found = [
                query.fetch_objects(),
                query.near_text("a", return_properties=["title"]),
                query.bm25("a", filters=Filter.by_property("title").like("text")),
            ]
            for combined in (
                lambda: query.near_object(ID),
                lambda: query.fetch_objects(return_references=QueryReference(link_on="more")),
            ):
                with pytest.raises(InsufficientPermissionsError, match="critical"):
                    combined()
            return [[each.properties for each in one.objects] for one in found]

    async with grpc_front(
        tmp_path, Server(*levels), policy(max_sensitivity="medium"), **marked
    ) as front:
        whole, titles, _ = found = await asyncio.to_thread(ask, front.port, front.grpc_port)
        for each in found:
            assert [one["title"] for one in each] == ["text of Open 1", "text of Open 3"]
        assert [one["level"] for one in whole] == ["low", "medium"]
        assert all(one.keys() == {"title"} for one in titles)
        first, *_ = await front.sidecar.lineage()
        assert first["detail"]["withheld"] == 1


@asynccontextmanager
async def without_grpc(tmp_path: Path) -> AsyncIterator[GrpcFront]:
    async with grpc_front(tmp_path, Server("low"), OPEN, grpc=None) as front:
        yield front


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_every_field_that_names_a_collection_or_tenant_is_judged"
)
async def test_without_the_setting_the_client_is_told_which_is_missing(tmp_path: Path) -> None:
    def ask(port: int, grpc_port: int) -> None:
        connected(port, grpc_port)

    async with without_grpc(tmp_path) as front:
        with pytest.raises(WeaviateGRPCUnavailableError) as raised:
            await asyncio.to_thread(ask, front.port, front.grpc_port)
        assert "setting `grpc`" in str(raised.value.__cause__)
