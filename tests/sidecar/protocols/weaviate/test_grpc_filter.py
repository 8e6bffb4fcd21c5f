"""Weaviate's objects with a level of their own, over gRPC: the condition that a search gets, and
what is withheld of its response."""

import itertools
from typing import Any

import pytest
from google.protobuf.message import Message
from weaviate.proto.v1 import base_search_pb2, search_get_pb2

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import FetchedResponse, ForwardedPart
from sidecar.protocols.shared.responses import DocumentLevels
from sidecar.protocols.weaviate.grpc_forwarding import add_filter, search_filter
from sidecar.protocols.weaviate.grpc_schema import SCHEMA
from tests.sidecar.protocols.weaviate.judging import judge_call

Search, Properties = search_get_pb2.SearchRequest, search_get_pb2.PropertiesRequest
LEVELS = DocumentLevels(("level",), ("low", "medium"))


def decoded(search: Message) -> dict[str, Any]:
    return SCHEMA["SearchRequest"].decode(search.SerializeToString()).values


# One function for all, here and below: a case of its own costs more than the judgement.
PLAIN: list[dict[str, Any]] = [
    {"uses_123_api": True},
    {"near_text": {"query": ["a"]}, "rerank": {"property": "title"}},
    {"hybrid_search": base_search_pb2.Hybrid(query="a", near_vector={})},
    {"metadata": {"uuid": True, "vectors": ["v"]}},
]
COMBINING: list[dict[str, Any]] = [
    {"near_text": {"query": ["a"], "move_to": {"uuids": ["1"]}}},
    {"near_text": {"query": ["a"], "move_away": {"concepts": ["b"]}}},
    {"hybrid_search": {"query": "a", "near_text": {"query": ["b"]}}},
    {"near_object": {"id": "1"}},
    {"group_by": {"path": ["title"]}},
    {"generative": {"single_response_prompt": "{title}"}},
    {"properties": {"ref_properties": [{"reference_property": "next"}]}},
    {"properties": {"object_properties": [{"prop_name": "level"}]}},
    {"metadata": {"query_profile": True}},
    {"boost": {"weight": 0.5}},
    {"after": "1"},
]


async def test_a_plain_search_is_filtered_and_one_that_combines_objects_is_not() -> None:
    for cases, filters in ((PLAIN, True), (COMBINING, False)):
        for more in cases:
            search = Search(collection="Open", **more)
            judged = await judge_call("Search", search, sensitivity_field="level")
            assert judged.filters is filters, more
    # A level inside another property.
    judged = await judge_call("Search", Search(collection="Open"), sensitivity_field="acl.level")
    assert not judged.filters


def test_the_condition_is_combined_with_the_caller_s_own() -> None:
    own = {"operator": 10, "value_text": "text", "target": {"property": "title"}}
    found, _ = add_filter(decoded(Search(collection="Open", filters=own)), LEVELS)
    level = {"property": "level"}
    condition = {
        "operator": 8,
        "filters": [
            {"operator": 1, "value_text": "low", "target": level},
            {"operator": 1, "value_text": "medium", "target": level},
        ],
    }
    assert found["filters"] == {"operator": 7, "filters": [condition, own]}
    # What the client's own classes read is the same.
    read = Search.FromString(SCHEMA["SearchRequest"].encode(found))
    assert read.filters.filters[0].filters[1].value_text == "medium"


def test_without_a_level_in_sight_there_is_no_condition() -> None:
    every = DocumentLevels(("level",), ("low", "critical"))
    assert "filters" not in add_filter({"collection": "Open"}, every)[0]


SELECTIONS: list[tuple[Message, list[str] | None]] = [
    (Search(), None),
    (Search(properties=Properties(return_all_nonref_properties=True), uses_123_api=True), None),
    (Search(properties=Properties(non_ref_properties=["Level"])), None),
    (Search(properties=Properties(non_ref_properties=["title"])), ["title", "level"]),
    (Search(properties=Properties(), uses_123_api=True), ["level"]),
    # An older client: what it doesn't name isn't returned.
    (Search(properties=Properties(return_all_nonref_properties=True)), ["level"]),
]


def test_the_level_is_requested_if_the_caller_did_not() -> None:
    for search, names in SELECTIONS:
        found, added = add_filter(decoded(search), LEVELS)
        assert added == (names is not None), search
        if names is not None:
            assert found["properties"]["non_ref_properties"] == names


def text(value: str | None) -> dict[str, Any]:
    return {"null_value": 0} if value is None else {"text_value": value}


def result(level: str | None, **more: Any) -> dict[str, Any]:
    fields = {"title": text("x"), "level": text(level)}
    return {"properties": {"non_ref_props": {"fields": fields}} | more, "metadata": b"\x0a\x011"}


def filtered(reply: dict[str, Any], *, added: bool = False) -> tuple[list[Any], ForwardedPart]:
    """The results that are left, and what is forwarded."""
    body = SCHEMA["SearchReply"].encode(reply)
    part = search_filter(LEVELS, level_added=added)(FetchedResponse(200, "", [], body))
    return SCHEMA["SearchReply"].decode(part.body).values.get("results", []), part


def test_only_visible_objects_are_returned() -> None:
    levels = ("low", "high", "medium", None, "Low", "low or critical")
    reply = {"took": 0.5, "results": [result(each) for each in levels]}
    found, part = filtered(reply)
    assert (found, part.withheld) == ([result("low"), result("medium")], 4)
    # The client's own classes read the same.
    read = search_get_pb2.SearchReply.FromString(part.body)
    assert [each.properties.non_ref_props.fields["level"].text_value for each in read.results] == [
        "low", "medium",
    ]  # fmt: skip


def test_a_level_that_was_added_is_removed_again() -> None:
    found, part = filtered({"results": [result("low"), result("high")]}, added=True)
    [only] = found
    assert only["properties"]["non_ref_props"] == {"fields": {"title": text("x")}}
    assert part.withheld == 1


def test_a_response_from_which_nothing_is_withheld_passes_byte_for_byte() -> None:
    # Fields in another order than ours.
    body = b"".join(
        SCHEMA["SearchReply"].encode(each) for each in ({"results": [result("low")]}, {"took": 1.0})
    )
    part = search_filter(LEVELS, level_added=False)(FetchedResponse(200, "", [], body))
    assert part == ForwardedPart(body)


HOLDERS = (
    ("low", None, True), ("high", None, False), ("low", "low", True), ("low", "high", False),
    ("high", "low", False), (None, None, False),
)  # fmt: skip


def test_both_members_that_may_hold_the_properties_are_filtered() -> None:
    for (old, new, seen), added in itertools.product(HOLDERS, (True, False)):
        properties: dict[str, Any] = {}
        for member, level in (("non_ref_properties", old), ("non_ref_props", new)):
            if level is not None:
                properties[member] = {"fields": {"level": {"string_value": level}}}
        found, part = filtered({"results": [{"properties": properties}]}, added=added)
        assert len(found) == seen, (old, new)
        assert (b"level" in part.body) == (seen and not added), (old, new)


UNREQUESTED: list[dict[str, Any]] = [
    {"group_by_results": [b""]},
    {"generative_grouped_result": "a text of all"},
    {"generative_grouped_results": b""},
    {"query_profile": b""},
    {"results": [result("low") | {"generative": b""}]},
    {"results": [result("low", ref_props=[b""])]},
]


def test_a_response_with_anything_else_or_that_cannot_be_read_is_withheld() -> None:
    for reply in UNREQUESTED:
        with pytest.raises(UpstreamFailed, match="not requested"):
            filtered(reply)
    for body in (b"\xff", b"\xa2\x06\x00", b"\x0d\0\0\0\x3f\x0d\0\0\0\x3f"):
        with pytest.raises(UpstreamFailed, match="can't be read"):
            search_filter(LEVELS, level_added=False)(FetchedResponse(200, "", [], body))
