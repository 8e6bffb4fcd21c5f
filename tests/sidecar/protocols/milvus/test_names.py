"""What a request to Milvus names: databases, collections by their names or aliases, partitions.
Each case is asked of the route table itself, without a sidecar."""

import json
from typing import Any

import pytest

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import canonical
from sidecar.protocols.milvus.routes import Milvus
from sidecar.protocols.protocol import FetchedResponse, RoutedRequest, Unresolved
from sidecar.protocols.strict_body import Budget, OverBudget
from tests.sidecar.protocols.milvus.server import Server
from tests.support.proxy import CLOCK, source

WHO = Attribution("ada", None, None, None)
C = {"collectionName": "open_docs"}


async def sources(
    path: str, body: dict[str, Any], *fields: tuple[bytes, bytes], server: Any = None
) -> list[str]:
    """The sources of a request, without the part that all ids have."""
    answer = server or Server("low").answer
    looked: list[str] = []

    async def fetch(target: str, body: bytes | None = None) -> FetchedResponse:
        looked.append(target)
        assert body is not None
        status, found = answer("POST", target, body)
        return FetchedResponse(status, "", [], json.dumps(found).encode())

    milvus = Milvus(source(1, "milvus"), CLOCK.monotonic)
    target = canonical(f"/v2/vectordb/{path}")
    match = milvus.match("POST", target)
    assert match is not None
    request = RoutedRequest("POST", target, (), body, fetch, list(fields), WHO, Budget())
    route = match.route
    assert route.find_sources is not None
    assert route.find_sources_now is not None
    found = await route.find_sources(milvus, request)
    if found:
        made = len(looked)
        # The second time, all names are cached.
        assert route.find_sources_now(milvus, request) == found
        assert len(looked) == made
    return [each.source_id.removeprefix("milvus://kb/") for each in found]


NAMED: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "plain": ("entities/search", C, ["default/open_docs"]),
    "empty database": ("entities/query", C | {"dbName": ""}, ["default/open_docs"]),
    "no database": ("entities/query", C | {"dbName": None}, ["default/open_docs"]),
    "database": ("entities/get", C | {"dbName": "other"}, ["other/open_docs"]),
    "alias": ("entities/search", {"collectionName": "open_alias"}, ["default/shut_docs"]),
    "alias of another database": (
        "entities/search", {"collectionName": "open_alias", "dbName": "other"},
        ["other/open_alias"],
    ),
    "unknown name": ("entities/query", {"collectionName": "new"}, ["default/new"]),
    "partitions": (
        "entities/search", C | {"partitionNames": ["ours", "theirs"]},
        ["default/open_docs/ours", "default/open_docs/theirs"],
    ),
    "partition of an alias": (
        "entities/query", {"collectionName": "docs", "partitionNames": ["ours"]},
        ["default/open_docs/ours"],
    ),
    # Milvus ignores this member here, and reads every partition.
    "one partition of a read": (
        "entities/get", C | {"partitionName": "ours"}, ["default/open_docs"],
    ),
    "namespace": (
        "entities/search", C | {"partitionNames": ["ours"], "namespace": "a"},
        ["default/open_docs"],
    ),
    "hybrid": ("entities/hybrid_search", C | {"search": [{"data": []}]}, ["default/open_docs"]),
    "hybrid, other collection": (
        "entities/advanced_search", C | {"search": [{}, {"collectionName": "open_alias"}]},
        ["default/open_docs", "default/shut_docs"],
    ),
    "hybrid, other database": (
        "entities/hybrid_search", C | {"search": [{"dbName": "other"}]},
        ["default/open_docs", "other/open_docs"],
    ),
    "hybrid, outer partitions": (
        "entities/hybrid_search", C | {"partitionNames": ["ours"], "search": [{}]},
        ["default/open_docs/ours"],
    ),
    "hybrid, inner partitions": (
        "entities/hybrid_search",
        C | {"partitionNames": ["ours"], "search": [{"partitionNames": ["theirs"]}]},
        ["default/open_docs/ours", "default/open_docs/theirs"],
    ),
    "hybrid, inner namespace": (
        "entities/hybrid_search",
        C | {"partitionNames": ["ours"], "search": [{"namespace": "a"}]},
        ["default/open_docs/ours", "default/open_docs"],
    ),
    "insert": ("entities/insert", C | {"partitionName": "ours"}, ["default/open_docs/ours"]),
    "delete": ("entities/delete", C, ["default/open_docs"]),
    "load state": (
        "collections/get_load_state", C | {"partitionNames": ["ours"]}, ["default/open_docs/ours"],
    ),
    "statistics": ("partitions/get_stats", C | {"partitionName": "a"}, ["default/open_docs/a"]),
    "alias described": ("aliases/describe", {"aliasName": "open_alias"}, ["default/shut_docs"]),
    "aliases of one collection": (
        "aliases/list", {"collectionName": "open_alias"}, ["default/shut_docs"],
    ),
    "renamed": (
        "collections/rename", C | {"newCollectionName": "new", "newDbName": "other"},
        ["default/open_docs", "other/new"],
    ),
    "created": ("collections/create", {"collectionName": "new"}, ["default/new"]),
    "database described": ("databases/describe", {"dbName": "other"}, ["other"]),
    "databases": ("databases/list", {}, []),
    "collections": ("collections/list", {"dbName": "other"}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
async def test_a_request_is_judged_by_what_it_names(case: str) -> None:
    path, body, expected = NAMED[case]
    assert await sources(path, body) == expected


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, Unresolved),
        ({"collectionName": ""}, Unresolved),
        # Milvus would remove the space.
        ({"collectionName": " shut_docs"}, Unresolved),
        ({"collectionName": "shut_docs\n"}, Unresolved),
        ({"collectionName": "a/b"}, Unresolved),
        ({"collectionName": 1}, Malformed),
        (C | {"collectionID": 7}, Unresolved),
        (C | {"dbName": "other "}, Unresolved),
        (C | {"dbName": ["other"]}, Malformed),
        # Milvus may take it for a regular expression.
        (C | {"partitionNames": [".*"]}, Unresolved),
        (C | {"partitionNames": ["ours$"]}, Unresolved),
        (C | {"partitionNames": [""]}, Unresolved),
        (C | {"partitionNames": "ours"}, Malformed),
        (C | {"partitionNames": [f"p{n}" for n in range(65)]}, OverBudget),
        # Milvus' reader ignores case, and takes the last.
        (C | {"CollectionName": "shut_docs"}, Malformed),
        (C | {"DBName": "other"}, Malformed),
        (C | {"PartitionNames": ["theirs"]}, Malformed),
        (C | {"search": [[]]}, Malformed),
        (C | {"search": {}}, Malformed),
        (C | {"search": [{"collectionname": "shut_docs"}]}, Malformed),
        (C | {"search": [{}] * 1001}, OverBudget),
    ],
)
async def test_a_name_that_milvus_could_read_otherwise_is_refused(
    body: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await sources("entities/hybrid_search", body)


@pytest.mark.parametrize(
    ("fields", "body", "expected"),
    [
        ([(b"DB-Name", b"other")], C, "other/open_docs"),
        ([(b"DB-Name", b"other")], C | {"dbName": "other"}, "other/open_docs"),
        ([(b"DB-Name", b"")], C, "default/open_docs"),
        ([(b"DB-Name", b"other")], C | {"dbName": "default"}, None),
        ([(b"DB-Name", b"other"), (b"db-name", b"default")], C, None),
    ],
)
async def test_the_header_names_the_database_of_a_request_that_names_none(
    fields: list[tuple[bytes, bytes]], body: dict[str, Any], expected: str | None
) -> None:
    if expected is None:
        with pytest.raises(Malformed):
            await sources("entities/search", body, *fields)
    else:
        assert await sources("entities/search", body, *fields) == [expected]


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}),
        (200, []),
        (200, {"code": 1401}),
        (200, {"code": 0}),
        (200, {"code": 0, "data": {"collectionName": ""}}),
    ],
)
async def test_a_failed_look_up_is_a_denial(answer: tuple[int, Any]) -> None:
    with pytest.raises(Unresolved, match="can't look up `open_docs`"):
        await sources("entities/search", C, server=lambda *_: answer)
