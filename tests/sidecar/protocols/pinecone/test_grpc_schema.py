"""The table of Pinecone's messages, held against the descriptors in its client's wheel, and the
names in them, each of which is judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import Malformed
from sidecar.http.grpc.protobuf import Name, Values
from sidecar.http.grpc.wire import bytes_field, varint_field
from sidecar.protocols.pinecone.grpc_routes import GRPC_ROUTES
from sidecar.protocols.pinecone.grpc_schema import RESPONSES, SCHEMA
from sidecar.protocols.shared.source_names import SourceNames
from tests.sidecar.http.grpc.descriptors import differences
from tests.sidecar.protocols.pinecone import wheel
from tests.sidecar.protocols.pinecone.calls import judged_call
from tests.support.properties import examples
from tests.support.proxy import source

READ = {"Query", "Fetch", "FetchByMetadata", "List", "ListNamespaces", "DescribeIndexStats"}
"""The methods whose responses the sidecar may have to read."""


def test_the_tables_are_those_of_the_official_client() -> None:
    listed = {route.pattern: route for route in GRPC_ROUTES}
    for name, method in wheel.methods().items():
        route = listed.pop(f"/VectorService/{name}")
        assert route.rpc
        assert route.message is SCHEMA[method.input_type.name]
        tables = [(route.message, method.input_type)]
        if name in READ:
            tables.append((RESPONSES[method.output_type.name], method.output_type))
        for table, descriptor in tables:
            assert list(differences(table.fields, descriptor, json_names=True)) == []
        assert (method.client_streaming, method.server_streaming) == (False, False)
    assert {path.split("/")[1].split(".")[1] for path in listed} == {"health", "reflection"}
    for each in (struct_pb2.Struct, struct_pb2.Value):
        table = RESPONSES[each.DESCRIPTOR.name]
        assert list(differences(table.fields, each.DESCRIPTOR)) == []


def named_fields(descriptor: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths to all strings of a request's message, but those within a filter and within what
    is written."""
    for field in descriptor.fields:
        if field.message_type is None:
            if field.type == field.TYPE_STRING:
                yield (*path, field.json_name)
        elif field.message_type.name not in ("Struct", "Vector", "MetadataSchema"):
            yield from named_fields(field.message_type, (*path, field.json_name))


NAMES_NOTHING = {"id", "ids", "prefix", "paginationToken"}
"""Strings that name no namespace: ids of records, and tokens, which are judged by what they stand
for."""


def with_name(path: tuple[str, ...], value: str) -> Values:
    """A message with this string at `path`."""
    first, *rest = path
    if not rest:
        return {first: value}
    return {first: [with_name(tuple(rest), value)]}


def test_every_string_that_names_a_namespace_is_judged() -> None:
    judged = 0
    for name, method in wheel.methods().items():
        for path in named_fields(method.input_type):
            if path[-1] in NAMES_NOTHING:
                continue
            values = with_name(path, "elsewhere")
            assert "pinecone://kb/elsewhere" in judged_call(name, values).sources, (name, path)
            assert Name("namespace", "elsewhere") in SCHEMA[method.input_type.name].names(values)
            judged += 1
    assert judged == 11


SOURCES = SourceNames(source(1, "pinecone"))


def named(data: bytes) -> set[str]:
    """The namespaces of a query as sources, by a lenient reader."""
    read = wheel.message("QueryRequest").FromString(data)
    names = [each.namespace or "__default__" for each in (read, *read.queries)]
    return {SOURCES.of(each).source_id for each in names}


NAMES = [bytes_field(1, each) for each in (b"open", b"shut", b"", b"__default__")]
QUERIES = [bytes_field(6, each) for each in (bytes_field(3, b"open"), bytes_field(3, b""), b"")]
PARTS = st.sampled_from([
    *NAMES, *QUERIES, varint_field(2, 1), bytes_field(7, bytes(8)), bytes_field(3, b""),
    bytes_field(6, bytes_field(3, b"open") + bytes_field(3, b"shut")), bytes_field(99, b"shut"),
    b"\x8a\0\4shut", b"\x0a\x84\0shut", b"\x0b\x0c", bytes_field(6, bytes_field(1, b"shut")),
])  # fmt: skip
CHANGES = st.none() | st.tuples(st.integers(0, 40), st.integers(0, 255))


@pytest.mark.deep(stands_in="test_every_string_that_names_a_namespace_is_judged")
@given(st.lists(PARTS, max_size=4), CHANGES)
@examples(2000)
def test_every_reader_finds_the_namespaces_that_were_judged(
    parts: list[bytes], change: tuple[int, int] | None
) -> None:
    data = bytearray(b"".join(parts))
    if change is not None and change[0] < len(data):
        data[change[0]] = change[1]
    try:
        call = judged_call("Query", bytes(data))
        named(bytes(data))
    except (Malformed, DecodeError):
        return  # Google's reader decodes sparse vectors, too
    assert set(call.sources) == named(bytes(data)) == named(call.request.body.data)
