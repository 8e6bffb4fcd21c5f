"""The collections and tenants of gRPC calls: every field that names one is judged, and the same
question has the same answer as over REST and GraphQL."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from weaviate.proto.v1 import (
    aggregate_pb2,
    base_pb2,
    base_search_pb2,
    batch_delete_pb2,
    batch_pb2,
    search_get_pb2,
    tenants_pb2,
)

from policies.ground.errors import Malformed
from sidecar.protocols.protocol import ALWAYS_DENIED, RouteClass, Unresolved
from sidecar.protocols.weaviate.grpc_routes import GRPC_ROUTES
from sidecar.protocols.weaviate.grpc_schema import SCHEMA
from tests.sidecar.protocols.weaviate.front import ID
from tests.sidecar.protocols.weaviate.judging import Judged, judge, judge_call
from tests.sidecar.protocols.weaviate.test_grpc_schema import methods, name_of

Search = search_get_pb2.SearchRequest
Filters, Target = base_pb2.Filters, base_pb2.FilterTarget
Reference = search_get_pb2.RefPropertiesRequest

# What a path to a field goes through has to be sound: these lead from `Open` to `OpenMore`.
SOUND = {
    "collection": "Open", "from_collection": "Open", "on": "more", "reference_property": "more",
    "target_collection": "OpenMore",
}  # fmt: skip
# The value that names something forbidden, by the mark of the field.
FORBIDDEN: dict[str, Any] = {
    "collection": "Shut", "tenant": "theirs", "reference": "next", "path": ["next", "Shut", "a"],
}  # fmt: skip
# The other strings in requests, by their names. None of them names a collection or a tenant.
TEXTS = {
    "after", "concepts", "grouped_properties", "grouped_response_task", "id", "image", "audio",
    "video", "depth", "thermal", "imu", "name", "non_ref_properties", "offset", "origin",
    "primitive_properties", "prompt", "prop_name", "properties", "property", "query", "scale",
    "single_response_prompt", "target", "target_vectors", "task", "uuid", "uuids", "value_text",
    "values", "vectors", "empty_list_props", "from_uuid", "to_uuid",
    # Of `vector_per_target`: a vector.
    "key",
    # Of `FilterReferenceCount` and `FilterReferenceMultiTarget`: a property. How many references
    # an object has is its own; where they lead is named beside it.
    "on",
}  # fmt: skip

Path = tuple[FieldDescriptor, ...]


def paths(message: Descriptor, before: Path = ()) -> Iterator[Path]:
    """The ways to each string in a message. A message is entered twice at most, so that it is also
    seen within itself."""
    for field in message.fields:
        within = field.message_type
        entered = [each.message_type for each in before].count(within)
        if field.type == FieldDescriptor.TYPE_STRING:
            yield (*before, field)
        elif within is not None and within.full_name.startswith("weaviate.") and entered < 2:
            yield from paths(within, (*before, field))


def naming(request: Descriptor, path: Path, value: Any) -> Message:
    """A request that is sound but for `value` in the field to which `path` leads."""
    message = root = GetMessageClass(request)()
    for field in path[:-1]:
        _fill(message)
        if field.is_repeated:
            message = getattr(message, field.name).add()
        else:
            message = getattr(message, field.name)
            message.SetInParent()
    _fill(message)
    last = path[-1]
    if last.is_repeated:
        getattr(message, last.name).extend([value] if isinstance(value, str) else value)
    else:
        setattr(message, last.name, value)
    return root


def _fill(message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.name in SOUND and not field.is_repeated and field.message_type is None:
            setattr(message, field.name, SOUND[field.name])


async def test_every_field_that_names_a_collection_or_tenant_is_judged() -> None:
    rows = {each.pattern: each for each in GRPC_ROUTES}
    judged = set()
    for method in methods():
        if rows[f"/{method.containing_service.full_name}/{method.name}"].route_class in (
            ALWAYS_DENIED
        ):
            continue
        for path in paths(method.input_type):
            owner, field = name_of(path[-1].containing_type), path[-1].name
            fields = SCHEMA[owner].fields.fields if owner in SCHEMA else {}
            mark = fields[field].mark if field in fields else ""
            if not mark:
                assert field in TEXTS or owner.startswith("Generative"), f"{owner}.{field}"
                continue
            message = naming(method.input_type, path, FORBIDDEN[mark])
            found = (await judge_call(method.name, message)).sources
            forbidden = [each for each in found if each == "Shut" or each.endswith("/theirs")]
            assert forbidden, (method.name, [each.name for each in path], found)
            judged.add((owner, field))
    # Nothing is marked without being judged somewhere.
    assert judged == {
        (name, each.name) for name in SCHEMA for each in SCHEMA[name].fields.ordered if each.mark
    }


def selecting(**reference: Any) -> search_get_pb2.PropertiesRequest:
    return search_get_pb2.PropertiesRequest(ref_properties=[Reference(**reference)])


def crossing(target: base_pb2.FilterTarget) -> base_pb2.Filters:
    return Filters(operator=Filters.OPERATOR_EQUAL, value_text="x", target=target)


TITLE = Target(property="title")
SINGLE = Target(single_target=base_pb2.FilterReferenceSingleTarget(on="next", target=TITLE))
MULTI = Target(
    multi_target=base_pb2.FilterReferenceMultiTarget(
        on="either", target=TITLE, target_collection="OpenMore"
    )
)


def graphql(query: str) -> tuple[str, str, Any]:
    return "POST", "/v1/graphql", {"query": query}


# A request, and the call that asks the same.
SAME: list[tuple[tuple[str, str, Any], str, Message]] = [
    (graphql("{ Get { Open { title } } }"), "Search", Search(collection="Open")),
    (graphql("{ Get { shut { title } } }"), "Search", Search(collection="shut")),
    (graphql("{ Get { OpenAlias { title } } }"), "Search", Search(collection="OpenAlias")),
    (graphql('{ Get { Open(tenant: "ours") { title } } }'), "Search",
     Search(collection="Open", tenant="ours")),
    (graphql("{ Get { Open { next { ... on Shut { title } } } } }"), "Search",
     Search(collection="Open", properties=selecting(reference_property="next"))),
    (graphql("{ Get { Open { either { ... on OpenMore { title } } } } }"), "Search",
     Search(collection="Open", properties=selecting(
         reference_property="Either", target_collection="OpenMore"))),
    (graphql('{ Get { Open(tenant: "ours", where: {path: ["next", "Shut", "title"]}) { title } }}'),
     "Search", Search(collection="Open", tenant="ours", filters=crossing(SINGLE))),
    (graphql('{ Get { Open(where: {path: ["either", "OpenMore", "title"]}) { title } } }'),
     "Search", Search(collection="Open", filters=crossing(MULTI))),
    (graphql('{ Get { Open(where: {path: ["next", "Shut", "title"]}) { title } } }'), "Search",
     Search(collection="Open", filters=Filters(on=["next", "Shut", "title"]))),
    (graphql('{ Get { Open(nearObject: {id: "1"}) { title } } }'), "Search",
     Search(collection="Open", near_object=base_search_pb2.NearObject(id="1"))),
    (graphql("{ Get { Open(hybrid: {query: \"a\"}) { title _additional { id } } } }"), "Search",
     Search(collection="Open", hybrid_search=base_search_pb2.Hybrid(query="a"))),
    (graphql('{ Get { Open { title _additional { generate(singleResult: {prompt: "x"}) '
             "{ singleResult } } } } }"), "Search",
     Search(collection="Open", generative={"single": {"prompt": "x"}})),
    (graphql('{ Get { Open { title _additional { rerank(property: "title") { score } } } } }'),
     "Search", Search(collection="Open", rerank={"property": "title"})),
    (graphql('{ Get { Open(groupBy: {path: ["title"], groups: 1}) { title } } }'), "Search",
     Search(collection="Open", group_by={"path": ["title"]})),
    (graphql('{ Get { Open(after: "1") { title } } }'), "Search",
     Search(collection="Open", after="1")),
    (graphql("{ Aggregate { Open { meta { count } } } }"), "Aggregate",
     aggregate_pb2.AggregateRequest(collection="Open", objects_count=True)),
    (("GET", "/v1/schema/Docs/tenants", None), "TenantsGet",
     tenants_pb2.TenantsGetRequest(collection="Docs")),
    (("GET", "/v1/schema/Docs/tenants/theirs", None), "TenantsGet",
     tenants_pb2.TenantsGetRequest(
         collection="Docs", names=tenants_pb2.TenantNames(values=["theirs"]))),
    (("POST", "/v1/batch/objects", {"objects": [{"class": "Open"}, {"class": "Shut"}]}),
     "BatchObjects", batch_pb2.BatchObjectsRequest(
         objects=[{"collection": "Open"}, {"collection": "Shut"}])),
    (("POST", "/v1/batch/references", [{"from": f"weaviate://localhost/Shut/{ID}/next"}]),
     "BatchReferences", batch_pb2.BatchReferencesRequest(
         references=[{"from_collection": "Shut", "name": "next"}])),
    (("DELETE", "/v1/batch/objects",
      {"match": {"class": "Open", "where": {"path": ["next", "Shut", "title"]}}}),
     "BatchDelete", batch_delete_pb2.BatchDeleteRequest(
         collection="Open", filters=crossing(SINGLE))),
]  # fmt: skip


async def test_the_same_question_is_judged_alike_over_rest_graphql_and_grpc() -> None:
    for (verb, target, body), method, message in SAME:
        for settings in ({}, {"sensitivity_field": "level"}):
            over_http: Judged = await judge(verb, target, body, **settings)
            over_grpc = await judge_call(method, message, **settings)
            assert over_grpc == over_http, (method, message)
            # A denied write is recorded under the first source.
            writes = over_grpc.route_class is RouteClass.WRITE
            assert over_grpc.hint == (over_grpc.sources[0] if writes else None), (method, message)


FOLLOWED: list[tuple[Message, set[str]]] = [
    # The property decides where a reference leads, whatever the request says.
    (Search(collection="Open", properties=selecting(
        reference_property="next", target_collection="OpenMore")),
     {"Open", "Shut", "OpenMore"}),
    (Search(collection="Docs", properties=selecting(
        reference_property="more", properties=selecting(reference_property="next"))),
     {"Open", "OpenMore", "Shut"}),
    (Search(collection="Open", filters=crossing(Target(
        multi_target=base_pb2.FilterReferenceMultiTarget(
            on="either", target=SINGLE, target_collection="OpenMore")))),
     {"Open", "OpenMore", "Shut"}),
    (Search(collection="Open", filters=crossing(
        Target(count=base_pb2.FilterReferenceCount(on="next")))), {"Open"}),
    (Search(collection="Open", boost={"conditions": [{"filter": crossing(SINGLE)}]}),
     {"Open", "Shut"}),
]  # fmt: skip
UNRESOLVED = [
    Search(),
    Search(collection="a/b"),
    Search(collection="Open", tenant="a/b"),
    Search(collection="Open", properties=selecting(reference_property="title")),
    Search(collection="Open", properties=selecting(reference_property="next.title")),
    Search(collection="Open", properties=selecting(reference_property="either")),
    Search(collection="Open", properties=selecting()),
    Search(collection="Missing", properties=selecting(reference_property="next")),
    Search(collection="Open", filters=crossing(
        Target(multi_target=base_pb2.FilterReferenceMultiTarget(on="either", target=TITLE)))),
    Search(collection="Open", filters=crossing(
        Target(single_target=base_pb2.FilterReferenceSingleTarget(on="either")))),
]  # fmt: skip


async def test_references_are_followed_by_the_property_they_are_in_or_denied() -> None:
    for search, sources in FOLLOWED:
        assert set((await judge_call("Search", search)).sources) == sources, search
    for search in UNRESOLVED:
        with pytest.raises(Unresolved):
            await judge_call("Search", search)


OPEN = Search(collection="Open").SerializeToString()
AMBIGUOUS = {
    "a collection twice": OPEN + Search(collection="Shut").SerializeToString(),
    "an unknown field": OPEN + b"\x9a\x06\x04Shut",
    "a group": OPEN + b"\x0b\x0c",
    "another wire type": OPEN + b"\x50\x01",
    "a longer number": b"\x0a\x84\x00Open",
    "a length beyond the end": b"\x0a\x05Open",
    "bytes that are no text": b"\x0a\x02\xff\xfe",
    "the key of a map twice": OPEN + b"\xda\x02\x0e" + b"\x3a\x05\x0a\x01a\x12\x00" * 2,
    "two targets of a filter": OPEN + b"\xc2\x02\x09\xa2\x01\x06\x0a\x01a\x0a\x01b",
    "an unknown field within": OPEN + b"\xc2\x02\x06\xa2\x01\x03\x2a\x01a",
}  # fmt: skip


async def test_a_message_that_readers_could_take_differently_is_refused() -> None:
    for data in AMBIGUOUS.values():
        with pytest.raises(Malformed):
            await judge_call("Search", data)


async def test_the_work_for_references_is_limited() -> None:
    many = Filters(filters=[Filters() for _ in range(4100)])
    with pytest.raises(Malformed, match="4096 values"):
        await judge_call("Search", Search(collection="Open", filters=many))
    objects = [{"collection": "Open"}] * 1001
    with pytest.raises(Malformed, match="1000 lines"):
        await judge_call("BatchObjects", batch_pb2.BatchObjectsRequest(objects=objects))


def test_closed_and_open_methods() -> None:
    classes = {each.pattern: each.route_class for each in GRPC_ROUTES}
    assert classes["/grpc.health.v1.Health/Check"] is RouteClass.OPEN
    assert classes["/weaviate.v1.Weaviate/BatchStream"] is RouteClass.WRITE
    assert classes["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"] in ALWAYS_DENIED
