"""`POST /v1/context/evaluate/batch`: order, early stops, faults and sessions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.control_api import ControlApi, asked


def test_a_batch_s_answers_and_events_are_in_its_order(api: ControlApi) -> None:
    sources = ["payroll", "handbook", "contracts", "payroll", "handbook"]
    body = {"items": [asked(source_id=source) for source in sources]}
    results = api.admin("POST", "/v1/context/evaluate/batch", body)["results"]
    denied = [each["decision"] == "DENY" for each in results]
    assert denied == [source == "payroll" for source in sources]
    found = {each["event_id"]: each["source_id"] for each in api.events("?limit=1000")}
    assert [found[each["event_id"]] for each in results] == sources
    assert len({each["event_id"] for each in results}) == len(sources)


@pytest.mark.deep(stands_in="test_a_batch_s_answers_and_events_are_in_its_order")
def test_a_batch_is_answered_in_order_with_an_event_each(either: ControlApi) -> None:
    sources = [("handbook", "payroll")[number % 3 == 0] for number in range(100)]
    body = {"items": [asked(source_id=source) for source in sources]}
    results = either.admin("POST", "/v1/context/evaluate/batch", body)["results"]
    expected = ["DENY" if source == "payroll" else "ALLOW" for source in sources]
    assert [each["decision"] for each in results] == expected
    ids = [each["event_id"] for each in results]
    assert len(set(ids)) == 100
    found = {each["event_id"]: each for each in either.events("?limit=1000")}
    assert [found[each]["source_id"] for each in ids] == sources


@pytest.mark.parametrize(
    ("semantics", "decided"),
    [("all", 4), ("stop_on_deny", 3), ("stop_on_allow", 1)],
)
def test_a_batch_ends_early_only_as_its_semantics_demand(
    api: ControlApi, semantics: str, decided: int
) -> None:
    sources = ["handbook", "handbook", "payroll", "handbook"]
    items = [asked(source_id=source) for source in sources]
    before = api.verified()["events"]
    body = {"items": items, "semantics": semantics}
    assert len(api.admin("POST", "/v1/context/evaluate/batch", body)["results"]) == decided
    assert api.verified()["events"] == before + decided


def test_a_batch_with_a_fault_is_refused_as_a_whole_with_422(fresh: ControlApi) -> None:
    items: list[Any] = [asked(), asked(agent_role=None), 7, asked(sensitivity_level="x")]
    answer = fresh.call("POST", "/v1/context/evaluate/batch", {"items": items, "semantics": "y"})
    assert answer.status == 422
    named = [line.partition(":")[0] for line in answer.body["details"].splitlines()]
    assert named == [
        "semantics",
        "items.1.agent_role",
        "items.2.retrieval",
        "items.3.sensitivity_level",
    ]
    every: list[Any] = [[], [asked()] * 101, {}, None]
    for wrong in every:
        assert fresh.call("POST", "/v1/context/evaluate/batch", {"items": wrong}).status == 422
    assert fresh.verified()["events"] == 0


def test_a_batch_claims_a_session_for_its_first_item(fresh: ControlApi) -> None:
    fresh.approved("a1")
    fresh.approved("a2")
    items = [asked(session_id="s", agent_id=agent) for agent in ("a1", "a2", "a1")]
    results = fresh.admin("POST", "/v1/context/evaluate/batch", {"items": items})["results"]
    assert [each["decision"] for each in results] == ["ALLOW", "DENY", "ALLOW"]
