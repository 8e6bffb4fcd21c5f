"""What a request to Milvus names: databases, collections by their names or aliases, partitions.
Each case is asked of the route table itself (`wires.py`), of REST and of gRPC alike."""

from typing import Any

import pytest

from policies.ground.errors import Malformed, SluiceError
from sidecar.protocols.milvus.grpc_schema import REQUESTS
from sidecar.protocols.milvus.routes import ROUTES
from sidecar.protocols.milvus.sources import SERVICE
from sidecar.protocols.protocol import Unresolved
from sidecar.protocols.strict_body import OverBudget
from tests.sidecar.protocols.milvus.wires import TWINS, Table, called, class_of

C = {"collectionName": "open_docs"}

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


# What only one of the wires has.
REST_ALONE = ("one partition of a read",)


async def test_a_request_is_judged_by_what_it_names_on_both_wires() -> None:
    for case, (path, body, expected) in NAMED.items():
        assert await Table().rest(path, body) == expected, case
        method = TWINS[path]
        if case not in REST_ALONE:
            assert await Table().grpc(method, called(method, body)) == expected, case
    # These may lead out of the partitions: to a namespace, or to a stored entity.
    ours = {"collection_name": "open_docs", "partition_names": ["ours"]}
    for more in ({"sub_reqs": [b"\x3a\x01a"]}, {"ids": b""}, {"search_by_primary_keys": True}):
        assert await Table().grpc("Search", ours | more) == ["default/open_docs"], more


def test_a_method_has_the_class_of_its_twin() -> None:
    for path, method in TWINS.items():
        of_rest = class_of(f"/v2/vectordb/{path}")
        assert of_rest is not None, path
        assert class_of(f"{SERVICE}/{method}") is of_rest, path


REFUSED: list[tuple[dict[str, Any], type[Exception]]] = [
    ({}, Unresolved),
    ({"collectionName": ""}, Unresolved),
    # Milvus would remove the space.
    ({"collectionName": " shut_docs"}, Unresolved),
    ({"collectionName": "shut_docs\n"}, Unresolved),
    ({"collectionName": "a/b"}, Unresolved),
    (C | {"dbName": "other "}, Unresolved),
    # Milvus may take it for a regular expression.
    (C | {"partitionNames": [".*"]}, Unresolved),
    (C | {"partitionNames": ["ours$"]}, Unresolved),
    (C | {"partitionNames": [""]}, Unresolved),
    (C | {"partitionNames": [f"p{n}" for n in range(65)]}, OverBudget),
    # Once for each search that has them from the whole: a long list is refused at once.
    (C | {"partitionNames": ["ours"] * 65}, OverBudget),
    (C | {"search": [{}] * 1001}, OverBudget),
    (C | {"search": [{"partitionNames": ["a b"]}]}, Unresolved),
]
REFUSED_IN_JSON: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"collectionName": 1}, Malformed),
    (C | {"collectionID": 7}, Unresolved),
    (C | {"dbName": ["other"]}, Malformed),
    (C | {"partitionNames": "ours"}, Malformed),
    # Milvus' reader ignores case, and takes the last.
    (C | {"CollectionName": "shut_docs"}, Malformed),
    (C | {"DBName": "other"}, Malformed),
    (C | {"PartitionNames": ["theirs"]}, Malformed),
    (C | {"search": [[]]}, Malformed),
    (C | {"search": {}}, Malformed),
    (C | {"search": [{"collectionname": "shut_docs"}]}, Malformed),
]


async def test_a_name_that_milvus_could_read_otherwise_is_refused() -> None:
    for body, error in (*REFUSED, *REFUSED_IN_JSON):
        with pytest.raises(error):
            await Table().rest("entities/hybrid_search", body)
    for body, error in REFUSED:
        with pytest.raises(error):
            await Table().grpc("HybridSearch", called("HybridSearch", body))
    for method, number in (
        ("DescribeCollection", {"collectionID": 7}), ("GetReplicas", {"collectionID": 7}),
        ("ManualCompaction", {"segment_ids": [7]}), ("ManualCompaction", {"partition_id": 7}),
        ("BatchDescribeCollection", {"collectionID": [7]}),
    ):  # fmt: skip
        values = {"collection_name": "open_docs", **number}
        if method == "BatchDescribeCollection":
            values["collection_name"] = ["open_docs"]
        with pytest.raises(Unresolved, match="is only a number"):
            await Table().grpc(method, values)


DATABASES: list[tuple[list[bytes], str, str | None]] = [
    ([b"other"], "", "other/open_docs"),
    ([b"other"], "other", "other/open_docs"),
    ([b""], "", "default/open_docs"),
    ([b""], "other", "other/open_docs"),
    ([b"other"], "default", None),
    ([b"other", b"default"], "", None),
]


async def test_the_header_names_the_database_of_a_request_that_names_none() -> None:
    for stated, named, expected in DATABASES:
        body = C | {"dbName": named}
        asked = (
            Table().rest("entities/search", body, *((b"DB-Name", each) for each in stated)),
            Table().grpc("Search", called("", body), *((b"dbname", each) for each in stated)),
        )
        for each in asked:
            if expected is None:
                with pytest.raises(Malformed):
                    await each
            else:
                assert await each == [expected]
    # Milvus' versions differ on the new name's database: that of the header, or of the old name.
    renamed = {"db_name": "other", "oldName": "open_docs", "newName": "new"}
    assert await Table().grpc("RenameCollection", renamed) == [
        "other/open_docs", "other/new", "default/new",
    ]  # fmt: skip


async def test_a_failed_look_up_is_a_denial() -> None:
    answers: list[tuple[int, Any]] = [
        (500, {}), (200, []), (200, {"code": 1401}), (200, {"code": 0}), (200, {"code": False}),
        (200, {"code": 0, "data": {"collectionName": ""}}),
    ]  # fmt: skip
    for answer in answers:
        with pytest.raises(Unresolved, match="can't look up `open_docs`"):
            await Table(lambda *_, answer=answer: answer).rest("entities/search", C)
    for answer in answers[2:4]:
        table = Table(lambda *_, answer=answer: answer)
        with pytest.raises(Unresolved, match="can't look up `open_docs`"):
            await table.grpc("Search", {"collection_name": "open_docs"})


CREATED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["default/open_docs"]),
    ({"name": "open_docs"}, ["default/open_docs"]),
    ({"name": "shut_docs"}, ["default/open_docs", "default/shut_docs"]),
    ({"dbName": "other"}, ["default/open_docs", "other/open_docs"]),
]


async def test_a_collection_is_created_under_every_name_in_the_call() -> None:
    for schema, expected in CREATED:
        data = REQUESTS["CollectionSchema"].encode(schema)
        values = {"collection_name": "open_docs", "schema": data}
        assert await Table().grpc("CreateCollection", values) == expected


def marked(message: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of the marked fields in a message."""
    found = []
    for field in message.ordered:
        if field.mark:
            found.append((*path, field.name))
        elif field.leads:
            found += marked(field.message, (*path, field.name))
    return found


def filled(message: Any, shut: tuple[str, ...] = ()) -> dict[str, Any]:
    """A message in which each marked field has a name, and the one at `shut` has another."""
    values: dict[str, Any] = {}
    for field in message.ordered:
        if not field.leads:
            continue
        inner = shut[1:] if shut[:1] == (field.name,) else ("nothing",)
        if field.mark:
            value: Any = "default" if field.mark == "database" else "open_docs"
            value = "shut" if not inner else value
        else:
            value = filled(field.message, inner)
        values[field.name] = [value] if field.repeated else value
    return values


async def test_every_marked_name_of_a_call_is_judged() -> None:
    judged = 0
    for route in ROUTES:
        if route.message is None:
            continue
        method = route.pattern.rpartition("/")[2]
        fields = route.message.fields
        before = await sources_or_refusal(method, filled(fields))
        assert not isinstance(before, str), (method, before)
        for path in marked(fields):
            after = await sources_or_refusal(method, filled(fields, path))
            assert after != before, (method, path)
            judged += 1
    assert judged > 100


async def sources_or_refusal(method: str, values: dict[str, Any]) -> list[str] | str:
    try:
        return await Table().grpc(method, values)
    except (SluiceError, Unresolved) as error:
        return str(error)
