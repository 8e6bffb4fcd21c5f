"""`GET /v1/policies/access`: who may read what, against the service's own evaluation with agents in
all statuses, bindings and keys of several roles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.policies.analysis import small
from tests.support.control_api import ControlApi, running_control_api

ROUTE = "/v1/policies/access"
POLICIES = """\
policies:
  - name: readers
    agent_role: r
    allowed_sources: [a, "b*"]
    denied_sources: [bx]
    max_sensitivity: medium
    denied_tasks: [t]
  - name: some
    agent_role: r
    allowed_sources: ["*"]
    denied_sources: []
    max_sensitivity: low
    permitted_agent_ids: ["one*", draft]
    allowed_tasks: [t]
  - name: others
    agent_role: s
    allowed_sources: [a]
    denied_sources: []
    max_sensitivity: critical
"""
SOURCES = ("a", "b", "bx", "c")
LEVELS = ("low", "medium", "high")
TASKS = (None, "t", "u")
AGENTS = (
    None, "one", "one_of_both", "bound", "draft", "pending", "suspended", "deprecated", "stranger",
)  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("access"), policies=POLICIES) as started:
        yield started


@pytest.fixture(scope="module")
def keys(api: ControlApi) -> list[str]:
    """Every key that may evaluate: one for one role, one bound to an agent, and the admin's."""
    api.approved("one", "r")
    api.approved("one_of_both", "r", permitted_roles=["r", "s"])
    own = api.admin("POST", "/v1/keys", {"name": "own", "scope": "evaluate"})
    api.approved("bound", "s", bound_key_id=own["key_id"])
    for agent_id, steps in (
        ("draft", ()),
        ("pending", ("pending_approval",)),
        ("suspended", ("pending_approval", "approved", "suspended")),
        ("deprecated", ("pending_approval", "approved", "deprecated")),
    ):
        api.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": "r"})
        for status in steps:
            api.admin("PATCH", f"/v1/agents/{agent_id}/status", {"status": status})
    api.admin("PATCH", f"/v1/keys/{own['key_id']}/binding", {"bound_agent_id": "bound"})
    of_role = api.admin("POST", "/v1/keys", {"name": "of a role", "scope": "evaluate"})
    api.admin("PATCH", f"/v1/keys/{of_role['key_id']}/binding", {"permitted_roles": ["s"]})
    return [own["key"], of_role["key"], api.admin_key]


def access(api: ControlApi, **asked: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = api.admin("GET", f"{ROUTE}?{urlencode(asked)}")["rows"]
    return rows


def matching(rows: list[dict[str, Any]], request: dict[str, Any]) -> list[dict[str, Any]]:
    agent = request.get("agent_id")
    return [
        row
        for row in rows
        if row["agent_role"] == request["agent_role"]
        and request["sensitivity_level"] in row["levels"]
        and small.covers(row["tasks"], request.get("task_type"))
        and small.covers(row["sources"], request["source_id"])
        and ("absent" in row["agents"] if agent is None else agent in row["agent_ids"])
    ]


def requests() -> Iterator[dict[str, Any]]:
    for role, agent, source, level, task in product(("r", "s"), AGENTS, SOURCES, LEVELS, TASKS):
        request = {
            "agent_role": role, "user_id": "u", "source_id": source, "sensitivity_level": level,
            "agent_id": agent, "task_type": task,
        }  # fmt: skip
        yield {name: value for name, value in request.items() if value is not None}


def allowed(api: ControlApi, keys: list[str], asked: list[dict[str, Any]]) -> list[bool]:
    """For each request, whether the service allows it to one of the keys."""
    found = [False] * len(asked)
    for key in keys:
        for at in range(0, len(asked), 100):
            body = {"items": asked[at : at + 100]}
            answer = api.call("POST", "/v1/context/evaluate/batch", body, key=key)
            assert answer.status == 200, answer.raw
            for offset, each in enumerate(answer.body["results"]):
                found[at + offset] |= each["decision"] == "ALLOW"
    return found


@pytest.mark.parametrize("required", [False, True])
def test_the_rows_match_what_the_service_allows(
    api: ControlApi, keys: list[str], required: bool
) -> None:
    settings = {"require_agent_id": required}
    api.admin("PATCH", "/v1/admin/tenants/default/settings", settings)
    asked = list(requests())
    by_role = [*access(api, agent_role="r"), *access(api, agent_role="s")]
    by_source = [row for source in SOURCES for row in access(api, source_id=source)]
    decided = allowed(api, keys, asked)
    assert any(decided)
    for request, allows in zip(asked, decided, strict=True):
        assert bool(matching(by_role, request)) == allows, request
        assert bool(matching(by_source, request)) == allows, request
    assert all(row["agent_ids"] or "absent" in row["agents"] for row in by_role)


def test_a_question_can_be_limited_by_each_parameter(api: ControlApi, keys: list[str]) -> None:
    assert keys
    rows = access(api, source_id="b*", agent_role="r", agent_id="one", task="u", level="low")
    assert {tuple(row["agent_ids"]) for row in rows} == {("one",)}
    assert all((row["levels"], row["tasks"]) == (["low"], ["u"]) for row in rows)
    assert access(api, agent_role="r", agent_id="suspended") == []
    assert access(api, agent_role="none") == []


def test_a_question_about_policies_alone_includes_agents_that_are_not_approved(
    api: ControlApi, keys: list[str]
) -> None:
    assert keys
    asked = {"agent_role": "r", "policies_only": "true"}
    rows = [{**row, "agent_ids": ["draft"]} for row in access(api, **asked, agent_id="draft")]
    # It is approved, and the policies say of it what they say of the draft.
    approved = access(api, agent_role="r", agent_id="one")
    for request in requests():
        if request["agent_role"] != "r" or request.get("agent_id") != "draft":
            continue
        as_one = matching(approved, {**request, "agent_id": "one"})
        assert bool(matching(rows, request)) == bool(as_one), request
    # About all roles.
    assert {row["agent_role"] for row in access(api, source_id="a", policies_only="true")} == {
        "r", "s",
    }  # fmt: skip


def test_a_question_about_nothing_is_refused(api: ControlApi) -> None:
    answer = api.call("GET", f"{ROUTE}?agent_id=one")
    assert answer.status == 422
    assert "source_id" in answer.body["details"]
    assert api.call("GET", f"{ROUTE}?source_id=a&level=top").status == 422


@pytest.mark.deep(
    stands_in="tests/control_api/store/queries/test_documents.py::test_all_of_a_kind_are_those_whose_names_begin_so"
)
def test_access_is_answered_on_either_database(either: ControlApi) -> None:
    either.approved("agt_1")
    rows = access(either, source_id="handbook")
    assert rows
    assert {(*row["agents"], *row["agent_ids"]) for row in rows} == {("absent", "*", "agt_1")}


def test_an_agent_bound_to_a_revoked_key_is_left_out(tenant: ControlApi) -> None:
    own = tenant.admin("POST", "/v1/keys", {"name": "own", "scope": "evaluate"})
    tenant.approved("agt_free")
    tenant.approved("agt_own", bound_key_id=own["key_id"])
    assert access(tenant, agent_role="support")[0]["agent_ids"] == ["agt_free", "agt_own"]
    tenant.admin("DELETE", f"/v1/keys/{own['key_id']}")
    assert access(tenant, agent_role="support")[0]["agent_ids"] == ["agt_free"]


@pytest.mark.deep(stands_in="test_an_agent_bound_to_a_revoked_key_is_left_out")
def test_an_agent_whose_key_was_revoked_may_read_nothing(fresh: ControlApi) -> None:
    own = fresh.admin("POST", "/v1/keys", {"name": "own", "scope": "evaluate"})
    fresh.approved("agt_1")
    fresh.approved("agt_2", bound_key_id=own["key_id"])
    assert access(fresh, agent_role="support")[0]["agent_ids"] == ["agt_1", "agt_2"]
    fresh.admin("DELETE", f"/v1/keys/{own['key_id']}")
    assert access(fresh, agent_role="support")[0]["agent_ids"] == ["agt_1"]
