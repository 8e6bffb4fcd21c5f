"""Policies over the API: created, replaced, deleted, restored, and what is decided then."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from control_api.policy import policy_change
from policies.ground.errors import Conflict
from tests.support.control_api import Answer, ControlApi

BODY: dict[str, Any] = {
    "name": "claims",
    "agent_role": "claims",
    "allowed_sources": ["claims-*"],
    "denied_sources": [],
    "max_sensitivity": "medium",
}
EMPTY: dict[str, Any] = {
    "allowed_tasks": [],
    "denied_tasks": [],
    "session_ttl_minutes": None,
    "permitted_agent_ids": [],
    "industry": None,
    "process_group": None,
}


def made(api: ControlApi, **changed: Any) -> Any:
    return api.admin("POST", "/v1/policies", {**BODY, **changed})


def decides(api: ControlApi, role: str = "claims", source: str = "claims-1") -> str:
    answer = api.evaluate(agent_role=role, source_id=source, sensitivity_level="low")
    decision: str = answer["decision"]
    return decision


def versions(api: ControlApi, policy_id: str) -> list[tuple[int, str, str]]:
    found = api.admin("GET", f"/v1/policies/{policy_id}/history")
    return [(each["version"], each["change"], each["policy"]["name"]) for each in found]


def replaced(
    api: ControlApi, policy_id: str, if_match: str | None = None, **changed: Any
) -> Answer:
    headers = {} if if_match is None else {"If-Match": if_match}
    return api.call("PUT", f"/v1/policies/{policy_id}", {**BODY, **changed}, headers=headers)


def changes(api: ControlApi) -> int:
    verified = api.verified()
    return int(verified["total"] - verified["events"])


def test_a_policy_that_moves_is_in_force_in_its_new_role_alone(api: ControlApi) -> None:
    fields = {"name": "moves", "agent_role": "from"}
    answer = api.call("POST", "/v1/policies", {**BODY, **fields})
    policy = answer.body
    assert (answer.status, answer.headers["ETag"]) == (201, '"1"')
    assert {name: policy[name] for name in BODY | EMPTY} == BODY | EMPTY | fields
    assert (policy["version"], policy["user_modified"]) == (1, False)
    assert (decides(api, "from"), decides(api, "to")) == ("ALLOW", "DENY")
    moved = replaced(api, policy["policy_id"], name="moves", agent_role="to")
    assert (moved.status, moved.headers["ETag"]) == (200, '"2"')
    assert (moved.body["version"], moved.body["user_modified"]) == (2, True)
    assert (decides(api, "from"), decides(api, "to")) == ("DENY", "ALLOW")
    assert api.call("DELETE", f"/v1/policies/{policy['policy_id']}").body == {}
    assert decides(api, "to") == "DENY"
    assert versions(api, policy["policy_id"]) == [
        (3, "deleted", "moves"),
        (2, "updated", "moves"),
        (1, "created", "moves"),
    ]


@pytest.mark.deep(stands_in="test_a_policy_that_moves_is_in_force_in_its_new_role_alone")
def test_a_policy_is_in_force_when_its_answer_leaves(either_tenant: ControlApi) -> None:
    assert decides(either_tenant) == "DENY"
    answer = either_tenant.call("POST", "/v1/policies", BODY)
    policy = answer.body
    assert answer.status == 201
    assert answer.headers["ETag"] == '"1"'
    assert {name: policy[name] for name in BODY | EMPTY} == BODY | EMPTY
    assert policy["policy_id"].startswith("pol_")
    assert (policy["version"], policy["user_modified"]) == (1, False)
    assert either_tenant.admin("GET", f"/v1/policies/{policy['policy_id']}") == policy
    assert decides(either_tenant) == "ALLOW"
    moved = replaced(either_tenant, policy["policy_id"], agent_role="other")
    assert moved.headers["ETag"] == '"2"'
    assert (moved.body["version"], moved.body["user_modified"]) == (2, True)
    assert (decides(either_tenant), decides(either_tenant, "other")) == ("DENY", "ALLOW")
    assert either_tenant.call("DELETE", f"/v1/policies/{policy['policy_id']}").body == {}
    assert decides(either_tenant, "other") == "DENY"
    assert versions(either_tenant, policy["policy_id"]) == [
        (3, "deleted", "claims"),
        (2, "updated", "claims"),
        (1, "created", "claims"),
    ]
    assert either_tenant.verified()["valid"]


def test_denied_sources_may_be_absent_and_a_misspelt_one_is_refused(api: ControlApi) -> None:
    short = {name: value for name, value in BODY.items() if name != "denied_sources"}
    first = made(api, name="whole")
    second = api.admin("POST", "/v1/policies", {**short, "name": "shortened"})
    assert second["denied_sources"] == []
    assert first.keys() == second.keys()
    # Nothing differs, so the same body without the member makes no version.
    path = f"/v1/policies/{first['policy_id']}"
    assert api.admin("PUT", path, {**short, "name": "whole"})["version"] == 1
    answer = api.call("POST", "/v1/policies", {**short, "name": "other", "denied_source": []})
    assert answer.status == 422
    assert "denied_source:" in answer.body["details"]


def test_a_deleted_policy_is_not_found_and_frees_its_name(api: ControlApi) -> None:
    first = made(api, name="short")["policy_id"]
    api.admin("DELETE", f"/v1/policies/{first}")
    for method, path in (("GET", ""), ("DELETE", ""), ("PUT", "")):
        body = BODY if method == "PUT" else None
        assert api.call(method, f"/v1/policies/{first}{path}", body).status == 404
    assert first not in [each["policy_id"] for each in api.admin("GET", "/v1/policies")]
    assert made(api, name="short")["policy_id"] != first


def test_a_taken_name_is_409(api: ControlApi) -> None:
    one, two = made(api, name="one"), made(api, name="two")
    assert api.call("POST", "/v1/policies", {**BODY, "name": "one"}).status == 409
    answer = replaced(api, two["policy_id"], name="one")
    assert answer.status == 409
    assert "`one`" in answer.body["message"]
    assert replaced(api, one["policy_id"], name="one", max_sensitivity="low").status == 200


def test_an_identical_body_makes_no_version(api: ControlApi) -> None:
    policy = made(api, name="same")
    before = changes(api)
    answer = replaced(api, policy["policy_id"], name="same", allowed_tasks=None)
    assert answer.body == policy
    assert changes(api) == before


@pytest.mark.parametrize(
    ("tag", "status"),
    [
        ('"1"', 200),
        ('"0", "1"', 200),
        ("*", 200),
        ('"2"', 412),
        ('W/"1"', 412),
        ('"01"', 412),
        ("1", 422),
        ("", 422),
        ('"1', 422),
        ("*, *", 422),
    ],
)
def test_if_match_is_honoured(api: ControlApi, tag: str, status: int) -> None:
    policy = made(api, name=f"match {tag}")
    changed = {"name": f"match {tag}", "max_sensitivity": "low"}
    answer = replaced(api, policy["policy_id"], tag, **changed)
    assert answer.status == status, answer.raw
    now = api.admin("GET", f"/v1/policies/{policy['policy_id']}")
    assert now["version"] == (2 if status == 200 else 1)


def test_one_of_four_concurrent_replacements_of_a_version_wins(api: ControlApi) -> None:
    policy = made(api, name="raced")["policy_id"]
    answers: list[int] = []

    def put(minutes: int) -> None:
        changed = {"name": "raced", "session_ttl_minutes": minutes}
        answers.append(replaced(api, policy, '"1"', **changed).status)

    threads = [threading.Thread(target=put, args=(minutes,)) for minutes in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 412, 412, 412]
    assert len(versions(api, policy)) == 2


@pytest.mark.deep(stands_in="test_one_of_four_concurrent_replacements_of_a_version_wins")
def test_one_of_many_replacements_of_the_same_version_wins(either_tenant: ControlApi) -> None:
    policy = made(either_tenant)["policy_id"]
    answers: list[int] = []

    def put(number: int) -> None:
        answers.append(replaced(either_tenant, policy, '"1"', session_ttl_minutes=number).status)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [412] * 7
    assert len(versions(either_tenant, policy)) == 2


def test_a_restored_policy_equals_the_one_of_its_file(either: ControlApi) -> None:
    (policy,) = either.admin("GET", "/v1/policies")
    path = f"/v1/policies/{policy['policy_id']}"
    body = {name: policy[name] for name in BODY | EMPTY}
    assert either.admin("POST", f"{path}/restore") == policy
    either.admin("PUT", path, {**body, "name": "renamed", "denied_sources": ["handbook"]})
    assert decides(either, "support", "handbook") == "DENY"
    assert either.admin("POST", "/v1/policies/reload")["skipped"] == [policy["name"]]
    restored = either.admin("POST", f"{path}/restore")
    assert {**restored, "updated_at": "", "version": 0, "changed_by": "disk"} == {
        **policy,
        "updated_at": "",
        "version": 0,
    }
    assert decides(either, "support", "handbook") == "ALLOW"
    either.admin("DELETE", path)
    assert decides(either, "support", "handbook") == "DENY"
    assert either.admin("POST", "/v1/policies/reload")["skipped"] == [policy["name"]]
    either.admin("POST", f"{path}/restore")
    assert decides(either, "support", "handbook") == "ALLOW"
    assert [change for _, change, _ in versions(either, policy["policy_id"])] == [
        "restored",
        "deleted",
        "restored",
        "updated",
        "added",
    ]
    # It needs a file, and a free name.
    either.admin("DELETE", path)
    own = made(either, name=policy["name"])["policy_id"]
    for each in (path, f"/v1/policies/{own}"):
        assert either.call("POST", f"{each}/restore").status == 409
    assert either.call("POST", "/v1/policies/pol_none/restore").status == 404
    # Nor does it break a guardrail that was made meanwhile.
    either.admin("DELETE", f"/v1/policies/{own}")
    either.admin("POST", "/v1/guardrails", {"name": "g", "never": {"sources": ["handbook"]}})
    refused = either.call("POST", f"{path}/restore")
    assert refused.status == 409
    assert json.loads(refused.body["details"])["guardrail"] == "g"


@pytest.mark.deep(stands_in="test_a_restored_policy_equals_the_one_of_its_file")
def test_a_restore_needs_a_file_and_a_free_name(tenant: ControlApi) -> None:
    own = made(tenant)["policy_id"]
    assert tenant.call("POST", f"/v1/policies/{own}/restore").status == 409
    (policy,) = [row for row in tenant.admin("GET", "/v1/policies") if row["name"] != "claims"]
    tenant.admin("DELETE", f"/v1/policies/{policy['policy_id']}")
    made(tenant, name=policy["name"])
    assert tenant.call("POST", f"/v1/policies/{policy['policy_id']}/restore").status == 409
    assert tenant.call("POST", "/v1/policies/pol_none/restore").status == 404
    assert tenant.call("GET", "/v1/policies/pol_none/history").status == 404


def test_each_page_of_a_history_continues_the_last(api: ControlApi) -> None:
    policy = made(api, name="paged")["policy_id"]
    for minutes in (1, 2):
        replaced(api, policy, name="paged", session_ttl_minutes=minutes)
    pages = list(api.pages(f"/v1/policies/{policy}/history?limit=2"))
    assert [[row["version"] for row in page] for page in pages] == [[3, 2], [1]]
    assert pages[0][0]["policy"]["session_ttl_minutes"] == 2
    assert pages[0][0]["changed_by"].startswith("key_")


@pytest.mark.deep(stands_in="test_each_page_of_a_history_continues_the_last")
def test_a_history_is_read_page_by_page(api: ControlApi) -> None:
    policy = made(api, name="often")["policy_id"]
    for minutes in range(1, 8):
        replaced(api, policy, name="often", session_ttl_minutes=minutes)
    pages = list(api.pages(f"/v1/policies/{policy}/history?limit=3"))
    assert [[row["version"] for row in page] for page in pages] == [[8, 7, 6], [5, 4, 3], [2, 1]]
    key = api.admin("GET", "/v1/keys")
    assert pages[0][0]["changed_by"] in {row["key_id"] for row in key}
    assert pages[0][0]["policy"]["session_ttl_minutes"] == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"denied_surces": []},
        {"max_sensitivity": "extreme"},
        {"allowed_sources": None},
        {"allowed_sources": ["a"] * 1001},
        {"session_ttl_minutes": 0},
        {"session_ttl_minutes": True},
        {"name": "a\x00b"},
        {"permitted_agent_ids": ["x" * 257]},
        {"user_modified": True},
        {"version": 3},
    ],
)
def test_a_policy_that_breaks_the_schema_is_422_and_changes_nothing(
    api: ControlApi, wrong: dict[str, Any]
) -> None:
    before = changes(api)
    answer = api.call("POST", "/v1/policies", {**BODY, **wrong})
    assert answer.status == 422
    assert answer.body["details"].startswith(next(iter(wrong)))
    assert changes(api) == before


def test_policies_that_make_a_role_s_document_too_large_are_409(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_most = 1024 * 1024
    assert policy_change.within_limit("large", bytes(at_most)) is not None
    with pytest.raises(Conflict, match="wildcards"):
        policy_change.within_limit("large", bytes(at_most + 1))
    made(api, name="large 1", agent_role="large")
    monkeypatch.setattr(policy_change, "MAX_DOCUMENT", 500)
    body = {**BODY, "name": "large 2", "agent_role": "large"}
    answer = api.call("POST", "/v1/policies", {**body, "allowed_sources": ["x" * 200] * 2})
    assert (answer.status, "wildcards" in answer.body["message"]) == (409, True)
    listed = api.admin("GET", "/v1/policies?agent_role=large")
    assert [each["name"] for each in listed] == ["large 1"]


@pytest.mark.deep(stands_in="test_policies_that_make_a_role_s_document_too_large_are_409")
def test_a_role_with_too_many_bytes_of_policies_is_409(api: ControlApi) -> None:
    big = [f"{number:03}" + "x" * 250 for number in range(1000)]
    fields = {"agent_role": "big", "allowed_sources": big, "denied_sources": big}
    made(api, name="big 1", **fields)
    made(api, name="big 2", **fields)
    answer = api.call("POST", "/v1/policies", {**BODY, "name": "big 3", **fields})
    assert answer.status == 409
    assert "wildcards" in answer.body["message"]


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_reload_policies.py::test_filters_and_pages_show_each_policy_once"
)
def test_lists_filter_by_each_attribute(api: ControlApi) -> None:
    made(api, name="f1", agent_role="f", industry="banking", process_group="lending")
    made(api, name="f2", agent_role="f", industry="banking")
    made(api, name="f3", agent_role="g", process_group="lending")

    def names(query: str) -> list[str]:
        return [row["name"] for row in api.admin("GET", f"/v1/policies?{query}")]

    assert names("agent_role=f") == ["f2", "f1"]
    assert names("industry=banking&agent_role=f&process_group=lending") == ["f1"]
    assert names("process_group=lending") == ["f3", "f1"]
