"""What remains of a response if the server did not keep to the condition."""

from typing import Any

import pytest

from policies.definitions.model import Sensitivity
from policies.ground.errors import UpstreamFailed
from sidecar.protocols.opensearch.query_filter import ShownFields, shown_fields
from sidecar.protocols.opensearch.result_filter import ResultFilter
from sidecar.protocols.protocol import Visibility


def result_filter(*levels: Sensitivity) -> ResultFilter:
    return ResultFilter(Visibility(lambda _: True, "meta.level", levels or ("low", "medium")))


def hit(level: Any, **more: Any) -> dict[str, Any]:
    return {"_index": "a", "_id": "1", "_source": {"meta": {"level": level}}, **more}


def answer(*hits: Any, **more: Any) -> dict[str, Any]:
    return {"hits": {"total": {"value": len(hits)}, "hits": list(hits)}, **more}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ({"meta": {"level": "low"}}, True),
        ({"meta.level": "low"}, True),
        ({"meta": {"level": ["low"]}}, True),
        ({"meta": [{"level": "medium"}]}, True),
        ({"meta": {"level": "high"}}, False),
        ({"meta": {"level": "LOW"}}, False),
        ({"meta": {"level": ["low", "high"]}}, False),
        ({"meta": {"level": "low"}, "meta.level": "high"}, False),
        ({"meta": [{"level": "low"}, {"level": "critical"}]}, False),
        ({"meta": {"level": None}}, False),
        ({"meta": {"level": {"is": "low"}}}, False),
        ({"meta": "low"}, False),
        ({"meta": {}}, False),
        ({}, False),
        (None, False),
        ([{"meta": {"level": "low"}}], True),
    ],
)
def test_a_document_is_visible_by_its_own_level(source: Any, seen: bool) -> None:
    response, results = answer({"_id": "1", "_source": source}), result_filter()
    results.filter_search(response, ShownFields())
    assert bool(response["hits"]["hits"]) is seen
    assert results.withheld == (not seen)
    assert response["hits"]["total"]["value"] == seen


def test_a_document_without_a_level_counts_as_critical() -> None:
    response = answer(hit("critical"), hit(None), hit("high"))
    result_filter("low", "medium", "critical").filter_search(response, ShownFields())
    assert response["hits"]["hits"] == [hit("critical"), hit(None)]


def test_other_fields_do_not_decide_the_level() -> None:
    response = answer(
        hit("high", fields={"meta.level": ["low"]}), {"fields": {"meta.level": ["low"]}}
    )
    result_filter().filter_search(response, ShownFields())
    assert response["hits"]["hits"] == []


def test_inner_documents_show_their_own_level() -> None:
    inner = answer(hit("low"), hit("critical"), hit(None))
    response, results = answer(hit("low", inner_hits={"more": inner})), result_filter()
    results.filter_search(response, ShownFields())
    assert response["hits"]["hits"][0]["inner_hits"]["more"]["hits"]["hits"] == [hit("low")]
    assert results.withheld == 2


def test_nested_parts_are_visible_with_their_document() -> None:
    parts = answer({"_nested": {"field": "parts"}, "_source": {"x": 1}})
    response = answer(
        hit("low", inner_hits={"parts": parts}), hit("high", inner_hits={"parts": parts})
    )
    result_filter().filter_search(response, ShownFields())
    assert response["hits"]["hits"] == [hit("low", inner_hits={"parts": parts})]
    mixed = answer({"_nested": {"field": "parts"}, "_source": {}}, hit("high"))
    response = answer(hit("low", inner_hits={"parts": mixed}))
    result_filter().filter_search(response, ShownFields())
    assert mixed["hits"]["hits"] == []


def test_aggregations_over_withheld_documents_are_not_passed_on() -> None:
    buckets = {"a": {"buckets": [{"key": "x", "doc_count": 2}]}}
    with pytest.raises(UpstreamFailed):
        result_filter().filter_search(
            answer(hit("low"), hit("high"), aggregations=buckets), ShownFields()
        )
    response = answer(hit("low"), aggregations=buckets)
    result_filter().filter_search(response, ShownFields())
    assert response["aggregations"] == buckets
    for top in (answer(hit("high")), {"buckets": [{"top": answer(hit(None))}]}):
        with pytest.raises(UpstreamFailed):
            result_filter().filter_search(answer(aggregations={"top": top}), ShownFields())


@pytest.mark.parametrize(
    "response",
    [None, [], "x", {"hits": None}, {"hits": {}}, {"hits": {"hits": {}}}, answer(suggest={}),
     answer(hit("low", inner_hits=[])), answer(hit("low", inner_hits={"a": {}})),
     answer(hit("low", inner_hits={"a": {"hits": {"hits": None}}}))],
)  # fmt: skip
def test_an_unknown_response_is_not_passed_on(response: Any) -> None:
    with pytest.raises(UpstreamFailed):
        result_filter().filter_search(response, ShownFields())


def test_an_added_level_is_removed_again() -> None:
    for source, left in (
        ({"x": 1, "meta": {"level": "low"}}, {"x": 1}),
        ({"x": 1, "meta.level": "low"}, {"x": 1}),
        ({"meta": {"level": "low", "page": 1}}, {"meta": {"page": 1}}),
    ):
        response = answer({"_source": source})
        result_filter().filter_search(response, ShownFields(level=False))
        assert response["hits"]["hits"] == [{"_source": left}]
    response = answer({"_id": "1", "_source": {"meta": {"level": "low"}}})
    result_filter().filter_search(response, ShownFields(source=False, level=False))
    assert response["hits"]["hits"] == [{"_id": "1"}]


@pytest.mark.parametrize(
    ("stated", "shown"),
    [
        (None, ShownFields()), (True, ShownFields()), (False, ShownFields(False, False)),
        ("x", ShownFields(level=False)),
        ("meta", ShownFields()), (["x", "meta.*"], ShownFields()), (["*"], ShownFields()),
        (["met?"], ShownFields(level=False)),
        ([], ShownFields()), ({"excludes": ["vector"]}, ShownFields()), ({"exclude": "meta"}, None),
        ({"excludes": ["*level"]}, None),
        ({"includes": ["x"], "excludes": ["y"]}, ShownFields(level=False)),
        ({"include": ["x"], "includes": ["meta"]}, None), ({"else": 1}, None), (7, None),
        ([7], None),
    ],
)  # fmt: skip
def test_the_shown_fields_are_those_that_the_caller_requested(
    stated: Any, shown: ShownFields | None
) -> None:
    assert shown_fields(stated, "meta.level") == shown


def test_a_document_by_its_id() -> None:
    results = result_filter()
    seen = {"_index": "a", "_id": "1", "found": True, "_source": {"meta": {"level": "low"}}}
    assert results.filter_document(seen) is seen
    for other in ({"found": False, "_id": "1"}, {"error": {}, "_id": "1"}):
        assert results.filter_document(other) is other
    hidden = {**seen, "_source": {"text": "x"}, "_seq_no": 7, "fields": {"text": ["x"]}}
    assert results.filter_document(hidden) == {"_index": "a", "_id": "1", "found": False}
    assert results.withheld == 1
    with pytest.raises(UpstreamFailed):
        results.filter_document(None)
