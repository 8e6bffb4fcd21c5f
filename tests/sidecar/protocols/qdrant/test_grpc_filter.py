"""Points with their own level, over gRPC: what is added to a call, and what is left of its
response, for an agent that may see up to `medium`. The messages are the official client's."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass
from qdrant_client import grpc
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import FetchedResponse, ForwardPlan, Visibility
from sidecar.protocols.qdrant.grpc_sources import DISCOVER_INPUTS, QUERY_INPUTS
from tests.sidecar.protocols.qdrant.calls import METHODS, judged_call, message_of, protocol

# Messages are made of dicts here, which the classes accept and their types don't say.
g: Any = grpc

LEVELS: tuple[Any, ...] = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
SEEN = [1, 3]
WORDS = {"keywords": {"strings": ["low", "medium"]}}
MINE = g.Condition(field=g.FieldCondition(key="acl.level", match=g.Match(**WORDS)))
THEIRS = g.Condition(has_id=g.HasIdCondition(has_id=[g.PointId(num=1)]))
NEAREST = {"nearest": {"dense": {"data": [1.0, 0.1]}}}
LEVEL_ONLY = {"include": {"fields": ["acl.level"]}}
EVERYTHING = {"with_payload": {"enable": True}}
OTHERS = {"owner": None, "list": [1, 2.5, True, {"a": "b"}]}
"""The members of `acl` beside the level: one of each kind."""


class Planned:
    """What becomes of a call, for an agent that may see these levels, and of its response."""

    def __init__(self, name: str, values: Any, levels: Any = ("low", "medium")) -> None:
        method = METHODS[f"qdrant.{name}"]
        self.asked: Any = message_of(name, values)
        self._answer: Any = GetMessageClass(method.output_type)
        qdrant = protocol(sensitivity_field="acl.level")
        call = judged_call(f"qdrant.{name}", self.asked, qdrant)
        seen = Visibility(lambda source: "open" in source.source_id, "acl.level", levels)
        assert call.route.plan_forward is not None
        self.plan: ForwardPlan = call.route.plan_forward(qdrant, call.request, (), seen)
        self.withheld = 0

    @property
    def sent(self) -> Any:
        assert self.plan.body is not None
        return type(self.asked).FromString(self.plan.body)

    def left_of_bytes(self, raw: bytes) -> bytes:
        assert self.plan.filter_response is not None
        part = self.plan.filter_response(FetchedResponse(200, "", [], raw))
        self.withheld = part.withheld
        return part.body

    def left_of(self, **values: Any) -> Any:
        raw = self._answer(**values).SerializeToString()
        return self._answer.FromString(self.left_of_bytes(raw))


def payload_of(level: Any) -> dict[str, Any]:
    return {"text": "t", "acl": {**OTHERS} if level is None else {**OTHERS, "level": level}}


def points(*payloads: dict[str, Any]) -> list[dict[str, Any]]:
    """Points with these payloads, numbered from 1."""
    return [
        {"id": {"num": number}, "payload": RestToGrpc.convert_payload(payload)}
        for number, payload in enumerate(payloads, 1)
    ]


def labelled(*levels: Any) -> list[dict[str, Any]]:
    """Points with these levels."""
    return points(*map(payload_of, levels))


def ids(found: Any) -> list[int]:
    return [each.id.num for each in found]


def test_the_condition_is_added_to_the_filter_of_every_search_and_prefetch() -> None:
    own = g.Filter(should=[THEIRS], must=[THEIRS])
    inner = {"query": NEAREST}
    prefetch = {"query": NEAREST, "filter": own, "prefetch": [inner, inner]}
    asked = {"query": NEAREST, "filter": own, "prefetch": [prefetch]}
    for batch in (False, True):
        if batch:
            planned = Planned("Points/QueryBatch", {"query_points": [asked] * 2})
            sent, before = planned.sent.query_points[1], planned.asked.query_points[1]
        else:
            planned = Planned("Points/Query", asked)
            sent, before = planned.sent, planned.asked
        extended = g.Filter(should=[THEIRS], must=[MINE, THEIRS])
        assert [sent.filter, sent.prefetch[0].filter] == [extended] * 2
        assert [each.filter for each in sent.prefetch[0].prefetch] == [g.Filter(must=[MINE])] * 2
        # Nothing else has changed, but for the payload that is requested.
        for part in (sent, sent.prefetch[0]):
            part.filter.CopyFrom(own)
        for part in sent.prefetch[0].prefetch:
            part.ClearField("filter")
        sent.ClearField("with_payload")
        assert sent == before


def returned(selector: Any, payload: dict[str, Any]) -> dict[str, Any]:
    """The part of a payload that Qdrant returns for this selector."""
    if selector.HasField("exclude"):
        return {name: each for name, each in payload.items() if name not in selector.exclude.fields}
    if selector.HasField("enable"):
        return payload
    kept = {name: each for name, each in payload.items() if name in selector.include.fields}
    if "acl.level" in selector.include.fields and "level" in payload["acl"]:
        kept["acl"] = {"level": payload["acl"]["level"]}
    return kept


@pytest.mark.parametrize(
    # A `with_payload`, what is requested in its place, and what is left of each point's payload.
    ("selector", "requested", "left"),
    [
        (None, LEVEL_ONLY, set()),
        ({"enable": False}, LEVEL_ONLY, set()),
        ({"enable": True}, {"enable": True}, {"text", "acl"}),
        ({"include": {}}, LEVEL_ONLY, set()),
        (
            {"include": {"fields": ["text"]}},
            {"include": {"fields": ["text", "acl.level"]}},
            {"text"},
        ),
        (
            {"exclude": {"fields": ["acl.level", "text"]}},
            {"exclude": {"fields": ["text"]}},
            {"acl"},
        ),
        ({"exclude": {"fields": ["acl"]}}, {"enable": True}, {"text"}),
    ],
)
def test_the_payload_is_widened_for_the_check_and_narrowed_again(
    selector: Any, requested: Any, left: set[str]
) -> None:
    planned = Planned("Points/Search", {"vector": [1.0], "with_payload": selector})
    assert planned.sent.with_payload == g.WithPayloadSelector(**requested)
    payloads = [returned(planned.sent.with_payload, payload_of(level)) for level in LEVELS]
    found = points(*payloads)
    response = planned.left_of(result=found, time=0.5)
    assert (ids(response.result), planned.withheld, response.time) == (SEEN, 5, 0.5)
    for point in response.result:
        payload = GrpcToRest.convert_payload(point.payload)
        assert payload.keys() == left
        if "acl" in left:
            shown = {"level": LEVELS[point.id.num - 1]} if "text" in left else {}
            assert payload["acl"] == {**OTHERS, **shown}


def test_points_are_withheld_in_every_form_of_response() -> None:
    for name in ("Query", "Search", "Recommend", "Discover", "Scroll", "Get"):
        planned = Planned(f"Points/{name}", EVERYTHING)
        assert ids(planned.left_of(result=labelled(*LEVELS)).result) == SEEN
        assert planned.sent.HasField("with_payload")
    # By default, a scroll has payloads, and points by their ids have none.
    page = Planned("Points/Scroll", {}).left_of(
        result=labelled(*LEVELS), next_page_offset={"num": 9}
    )
    assert page.next_page_offset.num == 9
    assert [GrpcToRest.convert_payload(each.payload).keys() for each in page.result] == [
        {"text", "acl"}, {"text", "acl"},
    ]  # fmt: skip
    planned = Planned("Points/Get", {"ids": [{"num": 1}]})
    # There is no filter to which a condition could be added.
    assert planned.sent.with_payload == g.WithPayloadSelector(**LEVEL_ONLY)
    assert not any(each.payload for each in planned.left_of(result=labelled("low")).result)
    # A batch, of which one result is empty.
    planned = Planned("Points/SearchBatch", {"search_points": [EVERYTHING] * 2})
    answered = planned.left_of(result=[{"result": labelled(*LEVELS)}, {}])
    assert [ids(each.result) for each in answered.result] == [SEEN, []]
    with pytest.raises(UpstreamFailed, match="1 results for 2 requests"):
        planned.left_of(result=[{}])


def test_groups_and_the_records_that_they_look_up_are_filtered() -> None:
    text = {"include": {"fields": ["text"]}}
    lookup = {"collection": "open_more", "with_payload": text}
    for name in ("QueryGroups", "SearchGroups", "RecommendGroups"):
        planned = Planned(f"Points/{name}", {**EVERYTHING, "with_lookup": lookup})
        assert planned.sent.filter == g.Filter(must=[MINE])
        assert planned.sent.with_lookup.with_payload.include.fields == ["text", "acl.level"]
        hits: list[Any] = [
            {"hits": labelled(*LEVELS), "lookup": labelled("low")[0]},
            {"hits": labelled("low"), "lookup": labelled("high")[0]},
            {"hits": labelled("high")},
            {},
        ]
        groups = [{"id": {"unsigned_value": at}, **each} for at, each in enumerate(hits)]
        left = planned.left_of(result={"groups": groups}).result.groups
        assert [(each.id.unsigned_value, ids(each.hits)) for each in left] == [(0, SEEN), (1, [1])]
        assert [each.HasField("lookup") for each in left] == [True, False]
        assert planned.withheld == 7
        # A response without groups has no list of them.
        assert planned.left_of_bytes(b"") == b""


def test_a_response_is_qdrants_own_bytes_or_readable() -> None:
    planned = Planned("Points/Search", EVERYTHING)
    raw = g.SearchResponse(result=labelled("low", "medium"), time=0.5).SerializeToString()
    assert planned.left_of_bytes(raw) == raw
    # A point with a payload: `acl`, and the value after it.
    entry = b"\x0a\x03acl\x12"
    for unreadable in (
        raw + b"\x7a\x01x",  # an unknown field
        raw[:-1],  # torn
        # A member of the payload twice, and its value.
        b"\x0a\x14\x12\x08" + entry + b"\x01\x08" + b"\x12\x08" + entry + b"\x01\x08",
        b"\x0a\x0f\x12\x0d" + entry + b"\x06\x22\x01a\x22\x01b",
    ):
        with pytest.raises(UpstreamFailed):
            planned.left_of_bytes(unreadable)
    # For an agent that may see points without a level there is a check, but no condition.
    planned = Planned("Points/Search", EVERYTHING, ("low", "critical"))
    assert not planned.sent.HasField("filter")
    assert ids(planned.left_of(result=labelled(*LEVELS)).result) == [1, 4, 5, 6, 7]
    # For one that may see everything, nothing changes.
    assert Planned("Points/Search", {}, None).plan == ForwardPlan()


def test_lists_hold_what_the_agent_may_see() -> None:
    listed = Planned("Collections/List", {})
    names = [{"name": name} for name in ("open_docs", "shut_docs")]
    left = listed.left_of(collections=names, time=0.5)
    assert left == g.ListCollectionsResponse(collections=names[:1], time=0.5)
    listed = Planned("Collections/ListAliases", {})
    named = (("open_alias", "shut_docs"), ("docs", "open_docs"))
    aliases = [{"alias_name": alias, "collection_name": name} for alias, name in named]
    left = listed.left_of(aliases=aliases)
    assert left == g.ListAliasesResponse(aliases=aliases[1:])
    raw = left.SerializeToString()
    assert listed.left_of_bytes(raw) == raw
    with pytest.raises(UpstreamFailed):
        listed.left_of(aliases=[{"alias_name": "a"}])


def inputs_of(message: Descriptor, wanted: str, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every path to a message of the type `wanted`, except through filters, formulas and what is
    embedded."""
    for field in message.fields:
        within = field.message_type
        if within is None or within.name in ("Filter", "Formula", "Value", "PrefetchQuery"):
            continue
        if within.GetOptions().map_entry:
            continue
        if within.name == wanted:
            yield ".".join((*path, field.name))
        else:
            yield from inputs_of(within, wanted, (*path, field.name))


def test_every_place_for_a_stored_point_is_known() -> None:
    query, discover = g.Query.DESCRIPTOR, g.DiscoverPoints.DESCRIPTOR
    assert set(inputs_of(query, "PointId")) == {f"{each}.id" for each in QUERY_INPUTS}
    assert set(inputs_of(discover, "PointId")) == {f"{each}.id" for each in DISCOVER_INPUTS}
    for other in (g.RecommendPoints, g.RecommendPointGroups):
        assert set(inputs_of(other.DESCRIPTOR, "PointId")) == {"positive", "negative"}
    for other in (g.SearchPoints, g.SearchPointGroups):
        assert list(inputs_of(other.DESCRIPTOR, "PointId")) == []
