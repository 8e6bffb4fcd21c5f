"""The audit trail over HTTP: lists, filters, pages, a session's trail, lineage, verification."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from pydantic import ValidationError

from control_api.audit.event_operations import EventsRequest
from policies.definitions.model import Key
from policies.ground.keys import key_digest
from policies.sets.policy_set import document_digest, key_document, key_name
from tests.support.control_api import ControlApi


def test_events_are_listed_newest_first_with_every_field(tenant: ControlApi) -> None:
    answers = [tenant.evaluate(user_id=f"u{number}") for number in range(3)]
    events = tenant.events()
    assert [event["event_id"] for event in events] == [a["event_id"] for a in answers[::-1]]
    first = events[-1]
    assert first["user_id"] == "u0"
    assert (first["decision"], first["policy_name"]) == ("ALLOW", "support-reads")
    assert events[0]["prev_hash"] == events[1]["hash"]
    assert events[0]["timestamp"].endswith("Z")
    assert len(events[0]["timestamp"]) == len("2026-01-01T00:00:00.000000Z")
    seen = []
    for page in tenant.pages("/v1/audit/events?limit=2"):
        seen += page
        tenant.evaluate()  # no page skips or repeats an event while others write
    assert seen == events


def test_each_filter_of_a_request_narrows(api: ControlApi) -> None:
    api.approved("agt_filters")
    api.evaluate(user_id="of filters", session_id="s-filters")
    api.evaluate(user_id="of filters", agent_id="agt_filters", source_id="payroll")
    api.evaluate(user_id="of filters", agent_role="other")
    newest = api.events("?limit=1")[0]["timestamp"]
    expected = {
        "decision=ALLOW": 1,
        "decision=DENY": 2,
        "agent_role=support": 2,
        "source_id=payroll": 1,
        "agent_id=agt_filters": 1,
        "session_id=s-filters": 1,
        "policy_name=default_deny": 1,
        "agent_role=nobody": 0,
        f"from={newest}": 1,
        f"to={newest}": 2,
    }
    found = {each: len(api.events(f"?user_id=of%20filters&{each}")) for each in expected}
    assert found == expected


@pytest.mark.deep(stands_in="test_each_filter_of_a_request_narrows")
def test_filters_reduce_the_list_of_events(tenant: ControlApi) -> None:
    tenant.approved("agt")
    tenant.evaluate(user_id="ann", session_id="s1")
    tenant.evaluate(user_id="bob", source_id="payroll")
    tenant.evaluate(user_id="bob", agent_id="agt", agent_role="support")
    tenant.evaluate(agent_role="other")
    newest = tenant.events("?limit=1")[0]["timestamp"]
    expected = {
        "decision=ALLOW": 2,
        "decision=DENY": 2,
        "agent_role=support": 3,
        "source_id=payroll": 1,
        "user_id=bob": 2,
        "agent_id=agt": 1,
        "session_id=s1": 1,
        "policy_name=default_deny": 1,
        "user_id=bob&decision=DENY": 1,
        f"from={newest}": 1,
        f"to={newest}": 3,
        "agent_role=nobody": 0,
    }
    assert {query: len(tenant.events(f"?{query}")) for query in expected} == expected


@pytest.mark.deep(stands_in="test_events_are_listed_newest_first_with_every_field")
def test_pages_neither_skip_nor_repeat_while_others_write(either_tenant: ControlApi) -> None:
    first = [either_tenant.evaluate()["event_id"] for _ in range(10)]
    seen = []
    for page in either_tenant.pages("/v1/audit/events?limit=3"):
        seen += [event["event_id"] for event in page]
        either_tenant.evaluate()
    assert seen == first[::-1]


def test_a_session_shows_its_own_events_oldest_first(api: ControlApi) -> None:
    names = ("its/own", "another", "its/own", "its/own")
    answers = [api.evaluate(session_id=name) for name in names]
    trail = [
        event["event_id"]
        for page in api.pages("/v1/audit/sessions/its%2Fown?limit=1")
        for event in page
    ]
    assert trail == [answers[place]["event_id"] for place in (0, 2, 3)]
    assert api.call("GET", "/v1/audit/sessions/nothing").status == 404


@pytest.mark.deep(stands_in="test_a_session_shows_its_own_events_oldest_first")
def test_a_session_s_trail_is_in_order_and_an_unknown_session_is_not_found(api: ControlApi) -> None:
    answers = [api.evaluate(session_id="trail/1") for _ in range(5)]
    pages = list(api.pages("/v1/audit/sessions/trail%2F1?limit=2"))
    assert [len(page) for page in pages] == [2, 2, 1]
    trail = [event["event_id"] for page in pages for event in page]
    assert trail == [answer["event_id"] for answer in answers]
    assert api.call("GET", "/v1/audit/sessions/never").status == 404


@pytest.mark.deep(stands_in="test_lineage_comes_in_pages")
def test_lineage_is_recorded_on_its_event_and_read_in_order(either_tenant: ControlApi) -> None:
    event_id = either_tenant.evaluate()["event_id"]
    sent = [
        {"event_id": event_id, "action_type": "summary", "detail": {"n": 1.5, "Ä": [None]}},
        {"event_id": event_id, "action_type": "email", "outcome": "sent"},
    ]
    for body in sent:
        answer = either_tenant.call("POST", "/v1/audit/lineage", body)
        assert (answer.status, answer.body) == (201, {})
    lineage = either_tenant.admin("GET", f"/v1/audit/lineage/{event_id}")
    assert lineage["event"]["event_id"] == event_id
    actions = lineage["actions"]
    assert [action["action_type"] for action in actions] == ["summary", "email"]
    assert actions[0]["detail"] == {"n": 1.5, "Ä": [None]}
    assert (actions[1]["detail"], actions[1]["outcome"]) == ({}, "sent")
    assert either_tenant.verified()["events"] == 1


def test_lineage_comes_in_pages(api: ControlApi) -> None:
    event_id = api.evaluate()["event_id"]
    for number in range(5):
        body = {"event_id": event_id, "action_type": f"a{number}", "outcome": "sent"}
        detail = {"detail": {"n": number + 0.5, "Ä": [None]}} if number else {}
        answer = api.call("POST", "/v1/audit/lineage", body | detail)
        assert (answer.status, answer.body) == (201, {})
    pages = list(api.pages(f"/v1/audit/lineage/{event_id}?limit=2"))
    assert [page["event"]["event_id"] for page in pages] == [event_id] * 3
    actions = [[action["action_type"] for action in page["actions"]] for page in pages]
    assert actions == [["a0", "a1"], ["a2", "a3"], ["a4"]]
    [last] = pages[-1]["actions"]
    assert (last["detail"], last["outcome"]) == ({"n": 4.5, "Ä": [None]}, "sent")
    assert pages[0]["actions"][0]["detail"] == {}


def test_lineage_of_an_unknown_event_is_not_found(api: ControlApi) -> None:
    body = {"event_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d", "action_type": "a"}
    assert api.call("POST", "/v1/audit/lineage", body).status == 404
    assert api.call("GET", f"/v1/audit/lineage/{body['event_id']}").status == 404


def test_lineage_can_t_be_recorded_on_a_change(api: ControlApi) -> None:
    api.new_key("read")
    with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
        (eid,) = database.execute(
            "SELECT eid FROM log_entries WHERE kind='change' LIMIT 1"
        ).fetchone()
    body = {"event_id": eid, "action_type": "a"}
    assert api.call("POST", "/v1/audit/lineage", body).status == 404


def test_a_key_bound_to_an_agent_records_lineage_of_that_agent_alone(api: ControlApi) -> None:
    made = api.admin("POST", "/v1/keys", {"name": "of one agent", "scope": "evaluate"})
    api.admin("PATCH", f"/v1/keys/{made['key_id']}/binding", {"bound_agent_id": "agt_own"})
    for agent in ("agt_own", "agt_another"):
        api.approved(agent)
    for fields, status in (
        ({"agent_id": "agt_own"}, 201), ({"agent_id": "agt_another"}, 403), ({}, 403),
    ):  # fmt: skip
        body = {"event_id": api.evaluate(**fields)["event_id"], "action_type": "a"}
        answer = api.call("POST", "/v1/audit/lineage", body, key=made["key"])
        assert answer.status == status


@pytest.mark.deep(stands_in="test_a_key_bound_to_an_agent_records_lineage_of_that_agent_alone")
def test_a_bound_key_records_lineage_as_its_binding_allows(fresh: ControlApi) -> None:
    made = fresh.admin("POST", "/v1/keys", {"name": "bound", "scope": "evaluate"})
    for agent_id in ("mine", "yours"):
        fresh.approved(agent_id)
    events = {name: fresh.evaluate(agent_id=name)["event_id"] for name in ("mine", "yours")}
    _bind(fresh, made["key"], made["key_id"], "mine")
    statuses = {
        name: fresh.call(
            "POST", "/v1/audit/lineage", {"event_id": event, "action_type": "a"}, key=made["key"]
        ).status
        for name, event in events.items()
    }
    assert statuses == {"mine": 201, "yours": 403}


def _bind(api: ControlApi, key: str, key_id: str, agent_id: str) -> None:
    """Bind a key as the operation does: by its document."""
    body = key_document(Key(key_id, "evaluate", agent_id))
    with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
        database.execute(
            "UPDATE documents SET body = ?, digest = ? WHERE name = ?",
            (body, document_digest(body), key_name(key_digest(key))),
        )
    api.restart()


def test_a_request_to_verify_names_the_row_that_was_changed(
    api: ControlApi, tenant: ControlApi
) -> None:
    events = [tenant.evaluate()["event_id"] for _ in range(3)]
    assert tenant.verified()["events"] == 3
    with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
        changed = "UPDATE log_entries SET decision = 'DENY' WHERE eid = ?"
        database.execute(changed, (events[1],))
    report = tenant.admin("GET", "/v1/audit/verify")
    assert (report["valid"], report["broken_at"]) == (False, events[1])
    assert "decision" in report["reason"]


@pytest.mark.deep(stands_in="test_a_request_to_verify_names_the_row_that_was_changed")
def test_a_tampered_log_is_answered_with_success_and_the_place_of_the_damage(
    fresh: ControlApi,
) -> None:
    answers = [fresh.evaluate(user_id=f"u{number}") for number in range(3)]
    with sqlite3.connect(fresh.directory / "data" / "sluice.db") as database:
        database.execute(
            "UPDATE log_entries SET decision = 'DENY' WHERE eid = ?", (answers[1]["event_id"],)
        )
    report = fresh.admin("GET", "/v1/audit/verify")
    assert report["valid"] is False
    assert report["broken_at"] == answers[1]["event_id"]
    assert "decision" in report["reason"]


@pytest.mark.parametrize("detail", [[1], "text", 5, None])
def test_a_detail_that_is_not_an_object_is_refused_with_422(api: ControlApi, detail: Any) -> None:
    body = {"event_id": "e", "action_type": "a", "detail": detail}
    assert api.call("POST", "/v1/audit/lineage", body).status == 422


def test_stats_count_what_the_trail_holds(tenant: ControlApi) -> None:
    empty = {"total": 0, "allowed": 0, "denied": 0, "deny_rate": 0.0}
    nothing: Any = {
        **empty,
        "by_source_type": {},
        "top_roles": [],
        "top_sources": [],
        "over_time": None,
    }
    assert tenant.admin("GET", "/v1/audit/stats") == nothing
    for source, kind in (("handbook", "sdk"), ("handbook", "rest"), ("payroll", "sdk")):
        tenant.evaluate(source_id=source, source_type=kind)
    tenant.evaluate(agent_role="nobody", source_type="sdk")
    assert tenant.admin("GET", "/v1/audit/stats") == {
        "total": 4,
        "allowed": 2,
        "denied": 2,
        "deny_rate": 0.5,
        "by_source_type": {
            "rest": {"total": 1, "allowed": 1, "denied": 0},
            "sdk": {"total": 3, "allowed": 1, "denied": 2},
        },
        "top_roles": [
            {"agent_role": "support", "total": 3, "denied": 1},
            {"agent_role": "nobody", "total": 1, "denied": 1},
        ],
        "top_sources": [
            {"source_id": "handbook", "total": 3, "denied": 1},
            {"source_id": "payroll", "total": 1, "denied": 1},
        ],
        "over_time": None,
    }


@pytest.mark.parametrize(
    ("window", "spans", "minutes"), [("hour", 60, 1), ("day", 96, 15), ("week", 84, 120)]
)
def test_stats_over_time_end_with_the_span_that_is_not_over(
    either_tenant: ControlApi, window: str, spans: int, minutes: int
) -> None:
    either_tenant.evaluate()
    either_tenant.evaluate(source_id="payroll")
    found = either_tenant.admin("GET", f"/v1/audit/stats?window={window}")["over_time"]
    assert found["span_minutes"] == minutes
    assert len(found["spans"]) == spans
    # The last two: a span may have ended between the decisions and the question.
    last = found["spans"][-2:]
    assert sum(each["allowed"] for each in last) == 1
    assert sum(each["denied"] for each in last) == 1
    assert not any(each["allowed"] or each["denied"] for each in found["spans"][:-2])


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-01-31T12:00:00.000000Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31t12:00:00.5z", "2026-01-31T12:00:00.500000Z"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123456Z"),
        ("2026-01-31T14:30:00+02:30", "2026-01-31T12:00:00.000000Z"),
        ("1960-01-31T12:00:00.000001-00:00", "1960-01-31T12:00:00.000001Z"),
    ],
)
def test_a_time_filter_accepts_every_form_of_its_standard(text: str, same: str) -> None:
    request = EventsRequest.model_validate({"from": text})
    assert request.since == same


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31",
        "2026-01-31 12:00:00Z",
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00.Z",
        "2026-02-30T12:00:00Z",
        "2026-01-31T12:00:60Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:00",
        "٢٠٢٦-01-31T12:00:00Z",
    ],
)
def test_a_time_filter_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        EventsRequest.model_validate({"from": text})
