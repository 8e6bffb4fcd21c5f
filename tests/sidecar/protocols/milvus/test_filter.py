"""Milvus' entities with levels of their own: the condition in the request, the check of the
response, and the requests that can't be filtered."""

import json
from typing import Any

import pytest

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.request_target import canonical
from sidecar.protocols.milvus import entity_filter
from sidecar.protocols.milvus.entity_filter import are_closed, is_closed, with_condition
from sidecar.protocols.milvus.routes import Milvus
from sidecar.protocols.protocol import FetchedResponse
from sidecar.protocols.shared.responses import DocumentLevels
from sidecar.protocols.strict_body import OverBudget
from tests.sidecar.protocols.milvus.front import HYBRID, MINE, QUERY, SEARCH, q
from tests.sidecar.protocols.minimal import Minimal, denied
from tests.support.proxy import CLOCK, source

FLAT = DocumentLevels(("level",), ("low", "medium"))


UNFILTERED: list[tuple[str, dict[str, Any]]] = [
    # Each of them could leave the brackets that are put around it, or counts what it hides.
    (SEARCH, {"filter": "true) or (true"}),
    (QUERY, {"filter": 'text == "\\") or (true'}),
    (QUERY, {"outputFields": ["count(*)"]}),
    (SEARCH, {"ids": [1], "data": None}),
    (SEARCH, {"searchAggregation": {}}),
    (SEARCH, {"functionChains": []}),
    (HYBRID, {"search": [{"filter": "true) or (true"}]}),
]


async def test_hidden_entities_are_withheld_or_judged_at_critical(marked: Minimal) -> None:
    cases: list[tuple[str, dict[str, Any], str | None]] = [
        (SEARCH, {"outputFields": ["text"], "filter": "id > 0"}, f"(id > 0) and {MINE}"),
        (SEARCH, {"outputFields": ["*"], "filter": "  "}, MINE),
        (QUERY, {}, MINE),
        (QUERY, {"outputFields": ["text", "level"]}, MINE),
        ("/v2/vectordb/entities/get", {"id": [1, 2, 3], "outputFields": ["text"]}, None),
        (HYBRID, {"search": [{"filter": "id > 0"}, {}]}, None),
    ]
    for path, more, condition in cases:
        answered = await marked.ask("POST", path, q(**more))
        assert answered.status == 200, answered.raw
        assert [each["id"] for each in answered.json["data"]] == [1, 3], path
        assert answered.json.get("topks", [2]) == [2]
        shown = "outputFields" not in more or not {"*", "level"} & set(more["outputFields"])
        by_default = path == QUERY and not more
        assert ("level" in answered.json["data"][0]) is (by_default or not shown), path
        assert marked.last.get("filter") == condition
    sent = [each["filter"] for each in marked.last["search"]]
    assert sent == [f"(id > 0) and {MINE}", MINE]
    assert marked.last["outputFields"] == ["level"]
    forwarded = list(marked.lines)
    for path, more in UNFILTERED:
        denied(await marked.ask("POST", path, q(**more)), "analysts-read")
    assert [each for each in marked.lines if "entities" in each] == [
        each for each in forwarded if "entities" in each
    ]


EXPRESSIONS: dict[str, bool] = {
    "": True,
    'a in [1, 2] and (b["x"] > {y} or text like "(%")': True,
    "text == 'it is \"so)\"'": True,
    r'text == "a\\"': True,
    r'text == "a\nb"': True,
    "true) or (true": False,
    "a in [1)": False,
    "(a": False,
    "a]": False,
    'text == "': False,
    "text == 'a\" or true": False,
    # With raw strings, the string would end at the first quotation mark.
    r'text == r"\" or true or "x"': False,
    "text == 'a\\": False,
    "a \\ b": False,
}


def test_a_hybrid_search_of_another_form_is_refused_at_once() -> None:
    malformed: list[Any] = [5, "a", {"a": 1}, [5], [[]], 1.5, True]
    for search, error in (([{}] * 1001, OverBudget), *((each, Malformed) for each in malformed)):
        with pytest.raises(error):
            entity_filter.can_filter({"search": search}, entity_filter.HYBRID)
    for more in ({"filter": 5}, {"outputFields": "a"}, {"outputFields": [5]}, {"Filter": "a"}):
        with pytest.raises(Malformed):
            entity_filter.can_filter(more, entity_filter.QUERY)


def test_an_expression_is_closed_in_every_reading() -> None:
    for expression, closed in EXPRESSIONS.items():
        assert is_closed(expression) is closed, expression
    assert are_closed(["(a)", "b in [1]"])
    assert not are_closed(["(a)", "b)"])
    # Closed, but it would take long to tell: the marks of all expressions count together.
    assert not are_closed(["[]" * 25_000, "()" * 25_000, "{}"])


def test_the_condition_reaches_into_a_json_field() -> None:
    nested = DocumentLevels(("acl", "level"), ("low",))
    assert with_condition("", nested) == '(acl["level"] == "low")'
    assert with_condition("a", DocumentLevels(("x",), ("critical",))) == "a"


def filtered(levels: DocumentLevels, answer: Any, added: bool = False) -> tuple[Any, int]:
    narrowed = entity_filter.NarrowedBody({}, added)
    response = FetchedResponse(200, "", [], json.dumps(answer).encode())
    part = entity_filter.response_filter(levels, narrowed)(response)
    return json.loads(part.body), part.withheld


def test_the_level_in_a_json_field_is_read_from_its_text() -> None:
    nested = DocumentLevels(("acl", "level"), ("low",))
    held = ['{"level": "low"}', {"level": "low"}, '{"level": ["low"]}', "low", None, "{"]
    answer = {"code": 0, "data": [{"id": n, "acl": acl} for n, acl in enumerate(held)]}
    found, withheld = filtered(nested, answer)
    assert ([each["id"] for each in found["data"]], withheld) == ([0, 1], 4)
    found, _ = filtered(nested, answer, added=True)
    assert found["data"] == [{"id": 0}, {"id": 1}]


def test_counts_of_each_vector_are_those_of_the_visible_entities() -> None:
    data = [{"level": each} for each in ("low", "high", "medium", "high", "low")]
    found, _ = filtered(FLAT, {"code": 0, "data": data, "topks": [2, 0, 3], "recalls": [1.0]})
    assert found["topks"] == [1, 0, 2]


FAULTY: list[Any] = [
    {"code": 0, "data": [{"level": "high"}], "topks": [2]},
    {"code": 0, "data": [{"level": "high"}], "topks": [-1, 2]},
    {"code": 0, "data": [{"level": "high"}], "topks": ["1"]},
    {"code": 0, "data": {"a": 1}},
    {"code": 0, "data": ["text"]},
    {"code": 0, "data": [], "aggTopks": [1]},
    [],
]


def test_a_response_of_another_form_is_withheld() -> None:
    for answer in FAULTY:
        with pytest.raises(UpstreamFailed):
            filtered(FLAT, answer)


def test_a_response_without_hidden_entities_passes_byte_for_byte() -> None:
    for raw in (b'{ "code":0, "data":[ {"level":"low"}] }', b'{"code": 1100, "message": "bad"}'):
        response = FetchedResponse(200, "", [], raw)
        narrowed = entity_filter.NarrowedBody({}, added=False)
        assert entity_filter.response_filter(FLAT, narrowed)(response) == (raw, 0)


def test_a_level_that_no_expression_can_name_is_not_filtered() -> None:
    for field, filters in (("level", True), ("acl.level", True), ('a"] or b["c', False)):
        milvus = Milvus(source(1, "milvus", sensitivity_field=field), CLOCK.monotonic)
        match = milvus.match("POST", canonical(QUERY))
        assert match is not None
        assert match.route.filters_documents is filters
        assert milvus.filters_levels is filters
