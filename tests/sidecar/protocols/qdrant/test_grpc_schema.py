"""Qdrant's tables of messages and methods, compared with the descriptors inside the official
client: a new version of the client shows here what it added."""

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from qdrant_client import grpc as g

from sidecar.protocols.protocol import ALWAYS_DENIED, RouteClass
from sidecar.protocols.qdrant.grpc_filter import RESPONSES
from sidecar.protocols.qdrant.grpc_routes import CALLS
from tests.sidecar.http.grpc.descriptors import differences
from tests.sidecar.protocols.qdrant.calls import METHODS, judged_call, protocol

ROWS = {row.pattern[1:]: row for row in CALLS}
# The table's name of each response that is filtered.
FILTERED = {
    **{f"Points/{each}": "Points" for each in ("Search", "Query", "Recommend", "Discover")},
    **{f"Points/{each}Batch": "Batch" for each in ("Search", "Query", "Recommend", "Discover")},
    **{f"Points/{each}Groups": "Groups" for each in ("Search", "Query", "Recommend")},
    "Points/Scroll": "Page",
    "Points/Get": "Records",
    "Collections/List": "Collections",
    "Collections/ListAliases": "Aliases",
}


def test_every_message_has_the_fields_that_the_client_knows() -> None:
    read = {name: row.message for name, row in ROWS.items() if row.message is not None}
    pairs = [
        (message, METHODS[name].input_type) for name, message in read.items() if name in METHODS
    ]
    for name, response in FILTERED.items():
        pairs.append((RESPONSES[response], METHODS[f"qdrant.{name}"].output_type))
    value = g.ScoredPoint.PayloadEntry.DESCRIPTOR.fields_by_name["value"].message_type
    pairs.append((RESPONSES["Value"], value))
    found = {each for message, client in pairs for each in differences(message.fields, client)}
    assert sorted(found) == []
    filtering = {name for name, row in ROWS.items() if row.plan_forward is not None}
    assert filtering == {f"qdrant.{name}" for name in FILTERED}


def test_every_method_of_the_client_has_a_row_of_its_own() -> None:
    for name, method in METHODS.items():
        service = name.partition("/")[0]
        assert name in ROWS or f"{service}/{{method}}" in ROWS, name
        assert not method.client_streaming
        assert not method.server_streaming


def test_every_row_that_reads_is_judged() -> None:
    for name, row in ROWS.items():
        lists = name in ("qdrant.Collections/List", "qdrant.Collections/ListAliases")
        if row.route_class not in (*ALWAYS_DENIED, RouteClass.OPEN) and not lists:
            assert row.message is not None, name
            assert row.find_sources is not None, name


# Strings that could name a source, by their own name or by that of their message.
NAMING = re.compile(
    r"collection|alias|lookup|snapshot|shard|location|tenant|database", re.IGNORECASE
)
# What is no source, though its name looks like one.
HARMLESS = {
    # Selects a part of the collection that is named beside it.
    "qdrant.ShardKey.keyword",
    # A vector of the collection that is named beside it.
    "qdrant.LookupLocation.vector_name",
    # Names of new fields and vectors in a collection, and paths in its documents.
    "qdrant.CreateFieldIndexCollection.field_name",
    "qdrant.DeleteFieldIndexCollection.field_name",
}
Path = tuple[FieldDescriptor, ...]


def naming_fields(message: Descriptor, path: Path = ()) -> Iterator[Path]:
    """Yield the way to every string that could name a source; each message type once on a way."""
    for field in message.fields:
        within = field.message_type
        if within is None:
            named = NAMING.search(f"{message.name}.{field.name}")
            if field.type == FieldDescriptor.TYPE_STRING and named:
                yield (*path, field)
        elif within not in [each.message_type for each in path] and within is not message:
            yield from naming_fields(within, (*path, field))


def call_with(method: MethodDescriptor, path: Path, repeat: int) -> Any:
    """A message about `open_docs` that names `shut_docs` at `path`; `repeat` is how often a
    `prefetch` is nested."""
    message: Any = GetMessageClass(method.input_type)()
    message.collection_name = "open_docs"
    inner = message
    for field in path[:-1]:
        for _ in range(repeat if field.name == "prefetch" else 1):
            part = getattr(inner, field.name)
            if field.is_repeated:
                part.add()
                inner = part.add()
            else:
                part.SetInParent()
                inner = part
    setattr(inner, path[-1].name, "shut_docs")
    return message


def test_every_string_that_could_name_a_collection_is_judged() -> None:
    qdrant = protocol()
    proven = set()
    for name, method in METHODS.items():
        row = ROWS.get(name)
        if row is None or row.route_class in ALWAYS_DENIED:
            continue
        for path in naming_fields(method.input_type):
            if path[-1].full_name in HARMLESS:
                continue
            nests = any(field.name == "prefetch" for field in path)
            for repeat in (1, 4) if nests else (1,):
                _, _, sources = judged_call(name, call_with(method, path, repeat), qdrant)
                assert "qdrant://kb/shut_docs" in sources, [each.name for each in path]
            proven.add(path[-1].full_name)
    # The walk found what a look-up can be written in.
    assert {
        "qdrant.WithLookup.collection",
        "qdrant.LookupLocation.collection_name",
        "qdrant.UpdateBatchPoints.collection_name",
    } <= proven
