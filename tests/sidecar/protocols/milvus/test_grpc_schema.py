"""Milvus' messages and methods as the sidecar knows them, beside the definitions in the client's
wheel. A new version of the wheel fails these tests, and shows what it adds."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from sidecar.http.grpc.schema import MessageFields
from sidecar.protocols.milvus.grpc_routes import GRPC_ROUTES
from sidecar.protocols.milvus.grpc_schema import REQUESTS, RESPONSES
from sidecar.protocols.milvus.sources import SERVICE
from tests.sidecar.http.grpc.descriptors import differences

NAMING = re.compile("collection|partition|alias|database|db|(old|new)name", re.IGNORECASE)


@cache
def definitions() -> Any:
    """The definitions in the wheel, without the client around them, which is slow to import."""
    found = find_spec("pymilvus")
    assert found is not None
    assert found.submodule_search_locations is not None
    package = ModuleType("milvus_definitions")
    package.__path__ = [f"{found.submodule_search_locations[0]}/grpc_gen"]
    sys.modules[package.__name__] = package
    return import_module(f"{package.__name__}.milvus_pb2").DESCRIPTOR


def messages() -> dict[str, Any]:
    file = definitions()
    files = (*file.dependencies, file)  # where two have a name, the service's own counts
    return {name: each for of in files for name, each in of.message_types_by_name.items()}


def test_every_message_is_as_in_the_wheel() -> None:
    known = messages()
    for schema in (REQUESTS, RESPONSES):
        for name in schema:
            assert list(differences(schema[name].fields, known[name])) == []


def test_every_method_has_a_row_with_its_message() -> None:
    service = definitions().services_by_name["MilvusService"]
    rows = {each.pattern.removeprefix(f"{SERVICE}/"): each for each in GRPC_ROUTES}
    own = {name for name in rows if "/" not in name}
    assert own == {each.name for each in service.methods}
    for method in service.methods:
        message = rows[method.name].message
        # A method without a message is closed, or open to all.
        assert message is None or message.fields.name == method.input_type.name, method.name
        assert message is None or not (method.client_streaming or method.server_streaming)
    # Other services have no row, and so are denied.
    assert {each.partition("/")[2].partition("/")[0] for each in rows if "/" in each} == {
        "grpc.health.v1.Health"
    }


def naming(message: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The paths of all strings in a message, at any depth, whose names suggest that they name
    something. A message within itself is followed twice."""
    for field in message.fields:
        inner = field.message_type
        if inner is None:
            if field.type == FieldDescriptor.TYPE_STRING and NAMING.search(field.name):
                yield (*path, field.name), field
        elif path.count(field.name) < 2:
            yield from naming(inner, (*path, field.name))


def test_every_string_that_names_something_is_marked() -> None:
    known = messages()
    checked = 0
    for route in GRPC_ROUTES:
        if route.message is None:
            continue
        fields = route.message.fields
        for path, field in naming(known[fields.name]):
            mine: MessageFields | None = fields
            for name in path[:-1]:
                assert mine is not None
                mine = mine.fields[name].message
            assert mine is not None, f"{fields.name}: `{'.'.join(path)}` is not decoded"
            assert mine.fields[field.name].mark, f"{fields.name}: `{'.'.join(path)}`"
            checked += 1
    assert checked > 100
