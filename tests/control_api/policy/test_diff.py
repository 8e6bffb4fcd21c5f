"""`POST /v1/policies/diff`: what a set of policies would change, against what is in force."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control_api.routes import ROUTES
from tests.control_api.edge.refused_requests import raw_request
from tests.support.control_api import POLICY, ControlApi

ROUTE = "/v1/policies/diff"
NOTHING: dict[str, list[Any]] = {"newly_allowed": [], "newly_denied": []}


def diff(api: ControlApi, *policies: dict[str, Any]) -> Any:
    answer = api.call("POST", ROUTE, {"policies": policies})
    assert answer.status == 200, answer.raw
    assert answer.headers["Content-Type"] == "application/json"
    return answer.body


@pytest.mark.deep(stands_in="test_a_row_has_an_example_and_both_decisions")
def test_the_policies_in_force_do_not_differ_from_themselves(api: ControlApi) -> None:
    assert diff(api, POLICY) == NOTHING
    listed = api.admin("GET", "/v1/policies")
    sent = [{name: each[name] for name in POLICY} for each in listed]
    assert diff(api, *sent) == NOTHING


def test_a_row_has_an_example_and_both_decisions(api: ControlApi) -> None:
    assert diff(api, POLICY) == NOTHING
    wider = POLICY | {"max_sensitivity": "critical", "allowed_sources": ["handbook"]}
    found = diff(api, wider)
    [row] = found["newly_allowed"]
    assert (row["sources"], row["levels"]) == (["handbook"], ["critical"])
    assert (row["before"]["decision"], row["after"]["decision"]) == ("DENY", "ALLOW")
    rows = [row, *found["newly_denied"]]
    assert {each for row in rows for each in row["sources"]} == set(POLICY["allowed_sources"])
    assert [_decided(api, each) for each in rows] == [each["before"] for each in rows]
    denied = {"decision": "DENY", "policy_name": POLICY["name"], "check": "source"}
    assert [each["after"] for each in found["newly_denied"]] == [denied] * (len(rows) - 1)


@pytest.mark.deep(stands_in="test_a_row_has_an_example_and_both_decisions")
def test_each_row_matches_a_change_of_the_service_s_decisions(fresh: ControlApi) -> None:
    api = fresh
    wider = POLICY | {"max_sensitivity": "critical", "allowed_sources": ["handbook"]}
    found = diff(api, wider)
    allowed, denied = found["newly_allowed"], found["newly_denied"]
    assert [(row["sources"], row["levels"]) for row in allowed] == [(["handbook"], ["critical"])]
    assert {each for row in denied for each in row["sources"]} == {"contracts", "rest://files/*"}
    before = [_decided(api, row) for row in (*allowed, *denied)]
    policy_id = api.admin("GET", "/v1/policies")[0]["policy_id"]
    api.admin("PUT", f"/v1/policies/{policy_id}", wider)
    after = [_decided(api, row) for row in (*allowed, *denied)]
    assert before == [row["before"] for row in (*allowed, *denied)]
    assert after == [row["after"] for row in (*allowed, *denied)]
    assert diff(api, wider) == NOTHING


def _decided(api: ControlApi, row: dict[str, Any]) -> dict[str, Any]:
    answer = api.call("POST", "/v1/context/simulate?explain=true", row["example"])
    assert answer.status == 200, answer.raw
    found = answer.body
    check = next((e["check"] for e in found["explain"]["checks"] if e["outcome"] == "failed"), None)
    return {"decision": found["decision"], "policy_name": found["policy_name"], "check": check}


def test_each_fault_names_its_policy(api: ControlApi) -> None:
    bad = POLICY | {"name": "other", "max_sensitivity": "top", "surprise": 1}
    answer = api.call("POST", ROUTE, {"policies": [POLICY, bad, {}]})
    assert answer.status == 422, answer.raw
    lines = answer.body["details"].splitlines()
    assert "policies.1.surprise: is not a known field" in lines
    assert any(line.startswith("policies.1.max_sensitivity: ") for line in lines)
    assert "policies.2.name: is required" in lines
    twice = api.call("POST", ROUTE, {"policies": [POLICY, POLICY]})
    assert (twice.status, "`support-reads`" in twice.body["details"]) == (422, True)
    many = api.call("POST", ROUTE, {"policies": [{}] * 1000})
    assert many.body["details"].splitlines()[-1].startswith("and ")


def test_patterns_that_overlap_in_too_many_ways_are_named(api: ControlApi) -> None:
    patterns = ["*a" + "?" * 20]
    answer = api.call("POST", ROUTE, {"policies": [POLICY | {"allowed_sources": patterns}]})
    assert answer.status == 422, answer.raw
    assert "overlap in too many ways" in answer.body["message"]
    assert {*patterns} <= {*answer.body["details"].splitlines()}


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"policies": [], "policies": []}'])
def test_a_body_that_is_not_an_object_is_400(api: ControlApi, raw: bytes) -> None:
    assert api.call("POST", ROUTE, raw=raw).status == 400


def test_a_body_of_megabytes_is_accepted_and_one_over_the_limit_refused(api: ControlApi) -> None:
    body = json.dumps({"policies": [7]}).encode()
    assert api.call("POST", ROUTE, raw=b" " * (2 * 1024 * 1024) + body).status == 422
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: x\r\nX-API-Key: {api.admin_key}\r\n"
    length = 32 * 1024 * 1024 + 1
    refused = raw_request(api, f"{head}Content-Length: {length}\r\n\r\n".encode())
    assert refused.startswith(b"HTTP/1.1 413 "), refused
    assert [each.max_body for each in ROUTES if each.path == ROUTE] == [length - 1]


@pytest.mark.deep(stands_in="test_a_body_of_megabytes_is_accepted_and_one_over_the_limit_refused")
def test_a_large_set_is_taken_and_a_larger_one_is_not(api: ControlApi) -> None:
    raw = b" " * (31 * 1024 * 1024) + json.dumps({"policies": [POLICY]}).encode()
    answer = api.call("POST", ROUTE, raw=raw)
    assert (answer.status, answer.body) == (200, NOTHING)
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: x\r\nX-API-Key: {api.admin_key}\r\n"
    length = 32 * 1024 * 1024 + 1
    refused = raw_request(api, f"{head}Content-Length: {length}\r\n\r\n".encode())
    assert refused.startswith(b"HTTP/1.1 413 "), refused
