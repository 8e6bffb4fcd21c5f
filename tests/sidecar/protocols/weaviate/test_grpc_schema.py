"""The tables of Weaviate's gRPC messages and methods, compared with the descriptors inside the
official client's wheel: a new version of the client shows here what it added."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import weaviate.proto.v1
from google.protobuf.descriptor import Descriptor, MethodDescriptor

from sidecar.protocols.protocol import ALWAYS_DENIED
from sidecar.protocols.weaviate.grpc_routes import GRPC_ROUTES
from sidecar.protocols.weaviate.grpc_schema import SCHEMA
from tests.sidecar.http.grpc.descriptors import differences

_STUBS = importlib.import_module(weaviate.proto.v1.search_get_pb2.__package__ or "")
_HEALTH = weaviate.proto.v1.health_weaviate_pb2.WeaviateHealthCheckRequest
# Where a response isn't looked into, or an object that is written isn't.
RAW_BELOW = {
    "SearchReply", "SearchResult", "PropertiesResult", "Value", "StructValue",
    "BatchObjectProperties",
}  # fmt: skip
# What servers before 1.27 fill, and the client no longer reads.
LEGACY = {
    *(f"weaviate.v1.PropertiesResult has no field {number}, `{name}`"
      for number, name in (
        (1, "non_ref_properties"), (5, "number_array_properties"), (6, "int_array_properties"),
        (7, "text_array_properties"), (8, "boolean_array_properties"), (9, "object_properties"),
        (10, "object_array_properties"),
      )),
    "weaviate.v1.Value has no field 2, `string_value`",
}  # fmt: skip
RESPONSES = (
    weaviate.proto.v1.search_get_pb2.SearchReply,
    weaviate.proto.v1.tenants_pb2.TenantsGetReply,
)


def methods() -> Iterator[MethodDescriptor]:
    """Every method of every service in the wheel."""
    for each in pkgutil.iter_modules(_STUBS.__path__):
        if each.name.endswith("_pb2"):
            module: Any = importlib.import_module(f"{_STUBS.__name__}.{each.name}")
            for service in module.DESCRIPTOR.services_by_name.values():
                yield from service.methods


def name_of(message: Descriptor) -> str:
    """The name of a message in our tables."""
    full: str = message.full_name
    return full.removeprefix("weaviate.v1.").replace(".", "")


def test_the_tables_have_the_fields_of_the_client_s_own_descriptors() -> None:
    described = [method.input_type for method in methods()]
    described += [each.DESCRIPTOR for each in RESPONSES]
    mine = [(SCHEMA[name_of(each)], each) for each in described if name_of(each) in SCHEMA]
    mine.append((SCHEMA["HealthCheckRequest"], _HEALTH.DESCRIPTOR))
    found = {line for ours, theirs in mine for line in differences(ours.fields, theirs)}
    assert found == LEGACY
    raw = {
        name for name in SCHEMA if any(each.kind == "raw" for each in SCHEMA[name].fields.ordered)
    }
    assert raw == RAW_BELOW


def test_every_method_in_the_client_has_a_row_that_reads_its_message_or_is_closed() -> None:
    rows = {each.pattern: each for each in GRPC_ROUTES}
    assert all(each.rpc for each in GRPC_ROUTES)
    found = list(methods())
    assert {each.containing_service.full_name for each in found} == {
        "weaviate.v1.Weaviate", "weaviate.v1.FileReplicationService",
    }  # fmt: skip
    for method in found:
        row = rows[f"/{method.containing_service.full_name}/{method.name}"]
        assert row.stream <= method.client_streaming, row.pattern
        if method.client_streaming and not row.stream:
            assert row.route_class in ALWAYS_DENIED, row.pattern
        elif row.route_class not in ALWAYS_DENIED:
            assert row.message is SCHEMA[name_of(method.input_type)], row.pattern
            assert row.find_sources is not None, row.pattern
