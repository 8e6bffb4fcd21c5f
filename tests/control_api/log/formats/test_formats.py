"""What each format makes of an event. `test_columns.py` compares it with the table of fields."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from control_api.log.formats import (
    CSV_COLUMNS,
    FORMATS,
    cloud_event,
    csv_row,
    ecs_document,
    ocsf_activity,
    otel_log_record,
    otel_resource,
)
from policies import __version__
from policies.ground.canonical import b64
from policies.trail.entry import audit_event
from policies.trail.record import REPORT_PREFIX
from tests.control_api.log.formats.events import ALLOWED, DENIED, EVENTS, SPARSE, TENANT, UNUSUAL
from tests.support.open_store import decision

TEXTS = {"query", "parameters"}
"""What no export but the trail's own has."""


def attributes(record: dict[str, Any]) -> dict[str, Any]:
    found = {each["key"]: next(iter(each["value"].values())) for each in record["attributes"]}
    assert len(found) == len(record["attributes"])
    return found


def cells(event: dict[str, Any]) -> dict[str, str]:
    [found] = csv.reader(io.StringIO(csv_row(event, TENANT).decode(), newline=""))
    return dict(zip(CSV_COLUMNS, found, strict=True))


def texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)
    elif isinstance(value, str):
        yield value


def test_an_allow_has_the_expected_ocsf_fields() -> None:
    policy = {"name": "loan-underwriting", "version": "3"}
    assert ocsf_activity(ALLOWED, TENANT) == {
        "class_uid": 6005,
        "category_uid": 6,
        "activity_id": 4,
        "type_uid": 600504,
        "severity_id": 1,
        "time": 1769860800123,
        "metadata": {
            "version": "1.8.0",
            "product": {"name": "Sluice", "vendor_name": "Sluice", "version": __version__},
            "profiles": ["security_control"],
            "uid": ALLOWED["event_id"],
            "sequence": 17,
            "tenant_uid": TENANT,
        },
        "action_id": 1,
        "disposition_id": 1,
        "status_id": 1,
        "status_detail": ALLOWED["reason"],
        "policy": policy,
        "actor": {
            "app_uid": "agt_loans",
            "app_name": "loan_underwriter",
            "user": {"uid": "u-1001"},
            "session": {"uid": "ses-1"},
            "authorizations": [{"decision": "ALLOW", "policy": policy}],
        },
        "databucket": {"name": "contracts", "uid": "contracts", "type_id": 99},
        "type_id": 2,
        "src_endpoint": {"name": "sidecar-1"},
        "raw_data_hash": {"algorithm_id": 3, "value": "ab" * 32},
        "unmapped": {"sensitivity_level": "high", "source_type": "envoy_http"},
    }


def test_a_deny_has_the_expected_ocsf_fields() -> None:
    found = ocsf_activity(DENIED, TENANT)
    assert found["severity_id"] == 3
    assert {found[name] for name in ("action_id", "disposition_id", "status_id")} == {2}
    assert found["policy"] == {"name": "no_policy"}
    assert found["status_code"] == "role"
    assert found["actor"]["authorizations"] == [
        {"decision": "DENY", "policy": {"name": "no_policy"}}
    ]


def test_absent_fields_are_left_out_of_ocsf_but_not_what_it_requires() -> None:
    found = ocsf_activity(SPARSE, TENANT)
    assert set(found["actor"]) == {"app_name", "authorizations"}
    assert found["src_endpoint"] == {"svc_name": "control-api"}


def test_an_allow_has_the_expected_ecs_fields() -> None:
    assert ecs_document(ALLOWED, TENANT) == {
        "@timestamp": "2026-01-31T12:00:00.123456Z",
        "ecs": {"version": "8.17"},
        "event": {
            "kind": "event",
            "category": ["database"],
            "type": ["access", "allowed"],
            "module": "sluice",
            "action": "retrieval",
            "id": ALLOWED["event_id"],
            "sequence": 17,
            "hash": "ab" * 32,
            "outcome": "success",
            "reason": ALLOWED["reason"],
        },
        "rule": {"name": "loan-underwriting", "version": "3"},
        "service": {"name": "agt_loans"},
        "user": {"id": "u-1001", "roles": ["loan_underwriter"]},
        "organization": {"id": TENANT},
        "observer": {"name": "sidecar-1"},
        "labels": {
            "source_id": "contracts",
            "sensitivity_level": "high",
            "source_type": "envoy_http",
            "session_id": "ses-1",
        },
    }


def test_a_deny_has_the_expected_ecs_fields() -> None:
    found = ecs_document(DENIED, TENANT)
    assert found["event"]["type"] == ["access", "denied"]
    assert found["event"]["outcome"] == "failure"
    assert found["rule"] == {"name": "no_policy"}
    assert found["labels"]["check"] == "role"


def test_absent_fields_are_left_out_of_ecs() -> None:
    found = ecs_document(SPARSE, TENANT)
    assert found["user"] == {"roles": ["loan_underwriter"]}
    assert "session_id" not in found["labels"]
    assert not {"service", "observer"} & set(found)


def test_an_allow_has_the_expected_cloudevents_fields() -> None:
    data = {name: value for name, value in ALLOWED.items() if name not in TEXTS}
    assert cloud_event(ALLOWED, TENANT) == {
        "specversion": "1.0",
        "id": ALLOWED["event_id"],
        "source": "urn:sluice:ten_acme",
        "type": "sluice.decision.allow",
        "subject": "contracts",
        "time": "2026-01-31T12:00:00.123456Z",
        "datacontenttype": "application/json",
        "data": data,
    }


def test_a_deny_has_the_expected_cloudevents_fields() -> None:
    found = cloud_event(SPARSE, TENANT)
    assert found["type"] == "sluice.decision.deny"
    assert found["data"]["check"] == "role"
    # Erased, so absent; what was never there is null, as in the audit event.
    assert "user_id" not in found["data"]
    assert found["data"]["session_id"] is None


def test_a_subject_has_no_character_that_cloudevents_forbids() -> None:
    found = cloud_event(UNUSUAL["noncharacters"], TENANT)
    assert found["subject"] == "a%EF%BF%BEb%F4%8F%BF%BFc%EF%B7%90"
    assert found["data"]["source_id"] == UNUSUAL["noncharacters"]["source_id"]
    assert cloud_event(UNUSUAL["unicode"], TENANT)["subject"] == "договоры/契約\u0301"


def test_an_allow_has_the_expected_otel_fields() -> None:
    found = otel_log_record(ALLOWED, TENANT)
    assert attributes(found) == {
        "gen_ai.operation.name": "retrieval",
        "sluice.tenant_id": TENANT,
        "sluice.event_id": ALLOWED["event_id"],
        "sluice.seq": "17",
        "sluice.hash": "ab" * 32,
        "sluice.decision": "ALLOW",
        "sluice.policy.name": "loan-underwriting",
        "sluice.policy.version": "3",
        "sluice.reason": ALLOWED["reason"],
        "gen_ai.agent.id": "agt_loans",
        "sluice.agent_role": "loan_underwriter",
        "user.id": "u-1001",
        "gen_ai.conversation.id": "ses-1",
        "gen_ai.data_source.id": "contracts",
        "sluice.sensitivity_level": "high",
        "sluice.source_type": "envoy_http",
        "sluice.sidecar_id": "sidecar-1",
    }
    del found["attributes"]
    assert found == {
        "eventName": "sluice.decision",
        "severityNumber": 9,
        "severityText": "INFO",
        "timeUnixNano": "1769860800123456000",
    }


def test_a_deny_has_the_expected_otel_fields() -> None:
    found = otel_log_record(SPARSE, TENANT)
    assert (found["severityNumber"], found["severityText"]) == (13, "WARN")
    named = attributes(found)
    assert named["error.type"] == "role"
    absent = {"user.id", "gen_ai.agent.id", "gen_ai.conversation.id", "sluice.sidecar_id"}
    assert not (absent | {"sluice.policy.version"}) & set(named)


def test_a_time_that_otlp_can_not_hold_is_an_attribute() -> None:
    for name in ("before 1970", "the epoch", "the year 0001", "the year 9999"):
        found = otel_log_record(UNUSUAL[name], TENANT)
        assert "timeUnixNano" not in found
        assert attributes(found)["sluice.timestamp"] == UNUSUAL[name]["timestamp"]


def test_the_resource_names_the_sidecar_if_there_is_one() -> None:
    assert attributes(otel_resource("sidecar-1")) == {
        "service.name": "sluice",
        "service.version": __version__,
        "service.instance.id": "sidecar-1",
    }
    assert "service.instance.id" not in attributes(otel_resource(None))


def test_milliseconds_before_1970_are_rounded_down() -> None:
    assert ocsf_activity(UNUSUAL["before 1970"], TENANT)["time"] == -1


def test_an_allow_has_the_expected_cells() -> None:
    shown = {name: ALLOWED[name] or "" for name in CSV_COLUMNS}
    assert set(CSV_COLUMNS) == set(ALLOWED) - TEXTS
    shown |= {"seq": "17", "policy_version": "3", "check": "", "pii_masked": "false"}
    shown |= {"time_doubtful": "false", "agent_foreign": "false"}
    assert cells(ALLOWED) == shown


def test_marks_of_a_record_are_in_every_format() -> None:
    marked = {**ALLOWED, "decision": "DENY", "time_doubtful": True, "agent_foreign": True}
    for mark in ("time_doubtful", "agent_foreign"):
        assert cells(marked)[mark] == "true"
        assert ocsf_activity(marked, TENANT)["unmapped"][mark] is True
        assert ecs_document(marked, TENANT)["labels"][mark] == "true"
        assert attributes(otel_log_record(marked, TENANT))[f"sluice.{mark}"] is True


def test_absent_fields_are_empty_cells() -> None:
    found = cells(SPARSE)
    for name in ("agent_id", "user_id", "session_id", "task_type", "sidecar_id", "policy_version"):
        assert found[name] == ""
    assert cells(UNUSUAL["masked"])["pii_masked"] == "true"


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx"),
        *(
            " =1",
            "\t=1",
            "\u00a0@x",
            "\u3000=1",
            " \u2003 -1",
            "\x0b=1",
            "＝1",
            "＠x",
            " ＋1",
            "－1",
        ),
        *('=HYPERLINK("http://x";"y")', "=cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0"),
    ],
)
def test_no_cell_begins_a_formula(text: str) -> None:
    found = cells(ALLOWED | {"source_id": text})
    assert found["source_id"] == "'" + text


@pytest.mark.parametrize("text", ["a=b", "1-1", "'=1", "a@b.example", "", " a", '"=1', "a\t=b"])
def test_other_text_is_not_changed(text: str) -> None:
    assert cells(ALLOWED | {"source_id": text})["source_id"] == text


@pytest.mark.parametrize("name", EVENTS)
def test_a_row_is_read_back_as_one(name: str) -> None:
    event = EVENTS[name]
    found = cells(event)
    for column in ("reason", "source_id", "user_id"):
        assert found[column].removeprefix("'") == (event[column] or "")


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("form", [form for form in FORMATS if form != "csv"])
def test_a_line_is_one_object_without_the_query(form: str, name: str) -> None:
    event = EVENTS[name] | {"query": "a query of the user"}
    line = FORMATS[form].encode(event, TENANT)
    assert b"\n" not in line
    assert "query" not in "".join(texts(json.loads(line)))
    # What an auditor needs to find the entry is in every format.
    found = set(texts(json.loads(line)))
    assert {event["event_id"], event["hash"], event["source_id"], event["reason"]} <= found


@pytest.mark.parametrize("form", FORMATS)
def test_a_forwarded_denial_is_marked_in_every_format(form: str) -> None:
    event = UNUSUAL["reported"]
    line = FORMATS[form].encode(event, TENANT).decode()
    assert event["reason"] in line
    changed = FORMATS[form].encode(DENIED, TENANT).decode()
    assert line.replace(event["reason"], DENIED["reason"]) == changed


def test_a_forwarded_denial_of_the_log_is_marked_in_every_format() -> None:
    bare = decision("DENY", source_id="payroll")
    entry = orjson.loads(
        bare.entry("sluice/x/default", 1, b64(b"\0" * 32), "2026-01-31T12:00:00.000000Z")
    )
    entry["pub"]["response"]["reason"] = f"{REPORT_PREFIX}no"
    event = audit_event(entry, b"", bare.openings)
    for each in FORMATS.values():
        assert b"report mode, forwarded: no" in each.encode(event, TENANT)


def test_no_row_has_the_query() -> None:
    assert b"terms of contract" not in csv_row(ALLOWED, TENANT)


def test_the_header_of_a_csv_file_names_its_columns() -> None:
    assert FORMATS["csv"].header == ",".join(CSV_COLUMNS).encode() + b"\r\n"
