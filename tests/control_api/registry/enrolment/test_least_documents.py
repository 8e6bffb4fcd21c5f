"""An enrolled sidecar is given the documents of its own agent and the tenant's, and no others."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from policies.ground.keys import key_digest
from policies.sets.policy_set import key_name
from tests.control_api.registry.enrolment.calls import enrolled, register
from tests.support.control_api import ControlApi

POLL = "/v1/sidecars/policy-set"


def poll(api: ControlApi, key: str, since: int = 0, epoch: str = "", wait: float = 0) -> Any:
    query = urlencode({"since": since, "epoch": epoch, "wait": f"{wait:g}"})
    answer = api.call("GET", f"{POLL}?{query}", key=key)
    assert answer.status == 200, answer.raw
    return answer.body


class Following:
    """A replica of what a sidecar is given, as `sidecar.policy_cache.full_replica` keeps it."""

    def __init__(self, api: ControlApi, key: str) -> None:
        self._api, self._key = api, key
        self.bodies: dict[str, str] = {}
        self.named: set[str] = set()
        self.epoch, self.revision = "", 0

    def poll(self, wait: float = 0) -> Any:
        page = poll(self._api, self._key, self.revision, self.epoch, wait)
        assert page["more"] is False
        if page["reset"]:
            self.bodies.clear()
        last = 0 if page["reset"] else self.revision
        for each in page["documents"]:
            assert last <= each["revision"] <= page["revision"]
            last = each["revision"]
            self.named.add(each["name"])
            if each["body"] is None:
                self.bodies.pop(each["name"], None)
            else:
                self.bodies[each["name"]] = each["body"]
        self.epoch, self.revision = page["epoch"], page["revision"]
        return page


def rule(role: str, name: str) -> dict[str, Any]:
    """A policy of this role."""
    return {
        "name": name,
        "agent_role": role,
        "allowed_sources": ["handbook"],
        "denied_sources": [],
        "max_sensitivity": "high",
        "allowed_tasks": [],
        "denied_tasks": [],
    }


def policy(api: ControlApi, role: str, name: str) -> str:
    made = api.admin("POST", "/v1/policies", rule(role, name))
    return str(made["policy_id"])


def key_of(api: ControlApi, scope: str = "evaluate", **fields: Any) -> tuple[str, str]:
    """A new key: its id, and the name of its document."""
    made = api.admin("POST", "/v1/keys", {"name": "k", "scope": scope} | fields)
    return made["key_id"], key_name(key_digest(made["key"]))


def world(api: ControlApi) -> dict[str, str]:
    """Documents of the agent `agt_loans`, and of others; returns the names of keys' documents."""
    policy(api, "loans", "own")
    policy(api, "payroll", "foreign")
    register(api, agent_role="loans")
    api.approved("agt_other", agent_role="payroll")
    return {
        "unbound": key_of(api)[1],
        "own": key_of(api, bound_agent_id="agt_loans")[1],
        "foreign": key_of(api, bound_agent_id="agt_other")[1],
        "sidecar": key_of(api, "sidecar", agent_ids=["*"])[1],
    }


def session(api: ControlApi, agent_id: str, role: str, name: str) -> None:
    key = api.admin("POST", "/v1/keys", {"name": "k", "scope": "sidecar", "agent_ids": ["*"]})
    body = {"session_id": name, "agent_role": role, "agent_id": agent_id, "user_id": "u-1"}
    claimed = api.call("POST", "/v1/sidecars/sessions/claim", body, key=key["key"])
    assert claimed.status == 200, claimed.raw
    api.admin("DELETE", f"/v1/sessions/{name}", {"reason": "lost"})


def an_enrolled_sidecar_is_given_its_agents_documents_and_the_tenants(api: ControlApi) -> None:
    keys = world(api)
    session(api, "agt_loans", "loans", "s-own")
    session(api, "agt_other", "payroll", "s-foreign")
    api.admin("PUT", "/v1/sources/salaries*", {"sensitivity_level": "critical"})
    page = poll(api, enrolled(api)["sidecar_key"])
    given = {each["name"] for each in page["documents"]}
    assert page["reset"] is True
    assert {name for name in given if not name.startswith("key/")} == {
        "tenant",
        "sources",
        "role/loans",
        "agent/agt_loans",
        "enrolment/agt_loans",
        "session/s-own",
    }
    assert {keys["unbound"], keys["own"]} <= given
    assert not {keys["foreign"], keys["sidecar"]} & given
    # A sidecar with a key of its own goes on getting everything.
    whole = api.call("GET", f"{POLL}?since=0").body
    assert {keys["foreign"], "role/payroll", "agent/agt_other"} <= {
        each["name"] for each in whole["documents"]
    }


def test_an_enrolled_sidecar_gets_the_documents_of_its_agent_and_tenant_only(
    cluster: ControlApi,
) -> None:
    an_enrolled_sidecar_is_given_its_agents_documents_and_the_tenants(cluster)


@pytest.mark.deep(
    stands_in="test_an_enrolled_sidecar_gets_the_documents_of_its_agent_and_tenant_only"
)
def test_either_database_gives_the_documents_of_its_agent_and_tenant_only(
    either_cluster: ControlApi,
) -> None:
    an_enrolled_sidecar_is_given_its_agents_documents_and_the_tenants(either_cluster)


def changes_of_others_are_not_told_and_the_revision_moves_on(api: ControlApi) -> None:
    keys = world(api)
    following = Following(api, enrolled(api)["sidecar_key"])
    following.poll()
    before = dict(following.bodies)
    other = policy(api, "payroll", "another")
    api.admin("DELETE", f"/v1/policies/{other}")
    key_id, name = key_of(api, bound_agent_id="agt_other")
    api.admin("DELETE", f"/v1/keys/{key_id}")
    session(api, "agt_other", "payroll", "s-foreign")
    page = following.poll()
    # The settings come again at the new revision: a page without documents says that nothing
    # changed, and a sidecar pauses after one that came before its time.
    assert [each["name"] for each in page["documents"]] == ["tenant"]
    assert (page["reset"], page["revision"]) == (False, following.revision)
    assert following.bodies == before
    assert name not in following.named
    assert keys["foreign"] not in following.named
    assert following.poll()["documents"] == []


def test_changes_of_others_are_not_sent_but_the_revision_advances(
    cluster: ControlApi,
) -> None:
    changes_of_others_are_not_told_and_the_revision_moves_on(cluster)


@pytest.mark.deep(stands_in="test_changes_of_others_are_not_sent_but_the_revision_advances")
def test_either_database_sends_no_changes_of_others(
    either_cluster: ControlApi,
) -> None:
    changes_of_others_are_not_told_and_the_revision_moves_on(either_cluster)


def test_own_changes_arrive_one_by_one(cluster: ControlApi) -> None:
    world(cluster)
    following = Following(cluster, enrolled(cluster)["sidecar_key"])
    following.poll()
    policy(cluster, "loans", "second")
    key_id, name = key_of(cluster)
    page = following.poll()
    assert page["reset"] is False
    assert name in following.bodies
    assert '"second"' in following.bodies["role/loans"]
    cluster.admin("DELETE", f"/v1/keys/{key_id}")
    session(cluster, "agt_loans", "loans", "s-own")
    page = following.poll()
    assert page["reset"] is False
    assert name not in following.bodies
    assert "session/s-own" in following.bodies


def test_roles_are_added_and_removed_with_their_agents(cluster: ControlApi) -> None:
    world(cluster)
    following = Following(cluster, enrolled(cluster)["sidecar_key"])
    following.poll()
    cluster.admin("PUT", "/v1/agents/agt_loans", {"permitted_roles": ["loans", "payroll"]})
    assert following.poll()["reset"] is True
    assert {"role/loans", "role/payroll"} <= following.bodies.keys()
    policy(cluster, "payroll", "later")
    assert following.poll()["reset"] is False
    assert '"later"' in following.bodies["role/payroll"]
    cluster.admin("PUT", "/v1/agents/agt_loans", {"permitted_roles": []})
    following.poll()
    assert "role/payroll" not in following.bodies


def test_documents_of_candidates_are_sent_with_their_roles(cluster: ControlApi) -> None:
    world(cluster)
    following = Following(cluster, enrolled(cluster)["sidecar_key"])
    following.poll()
    body = {"policies": [rule("loans", "n"), rule("payroll", "m")]}
    cluster.admin("PUT", "/v1/policies/candidates/next", body)
    following.poll()
    assert "candidate/next/loans" in following.bodies
    assert "candidate/next/payroll" not in following.named
    anew = Following(cluster, enrolled(cluster)["sidecar_key"])
    anew.poll()
    assert anew.bodies == following.bodies


@pytest.mark.parametrize("former", [None, "agt_loans"])
def test_a_key_that_is_bound_to_another_agent_is_removed(
    cluster: ControlApi, former: str | None
) -> None:
    world(cluster)
    key_id, name = key_of(cluster, bound_agent_id=former)
    following = Following(cluster, enrolled(cluster)["sidecar_key"])
    following.poll()
    assert name in following.bodies
    cluster.admin("PATCH", f"/v1/keys/{key_id}/binding", {"bound_agent_id": "agt_other"})
    following.poll()
    assert name not in following.bodies
    cluster.admin("PATCH", f"/v1/keys/{key_id}/binding", {"bound_agent_id": former})
    following.poll()
    assert name in following.bodies


def test_a_key_of_another_agent_is_not_named_when_it_is_bound_anew(
    cluster: ControlApi,
) -> None:
    world(cluster)
    key_id, name = key_of(cluster, bound_agent_id="agt_other")
    following = Following(cluster, enrolled(cluster)["sidecar_key"])
    following.poll()
    cluster.approved("agt_third")
    cluster.admin("PATCH", f"/v1/keys/{key_id}/binding", {"bound_agent_id": "agt_third"})
    following.poll()
    assert name not in following.named


def test_documents_of_others_look_absent_by_name(cluster: ControlApi) -> None:
    keys = world(cluster)
    session(cluster, "agt_other", "payroll", "s-foreign")
    key = enrolled(cluster)["sidecar_key"]
    own = ["tenant", "role/loans", "agent/agt_loans", keys["unbound"]]
    foreign = ["role/payroll", "agent/agt_other", keys["foreign"], "session/s-foreign", "role/none"]
    answer = cluster.call("POST", f"{POLL}/documents", {"names": own + foreign}, key=key)
    bodies = {each["name"]: each["body"] for each in answer.body["documents"]}
    assert bodies.keys() == {*own, *foreign}
    assert all(bodies[name] for name in own)
    absent = {each["name"]: each for each in answer.body["documents"] if each["name"] in foreign}
    assert all(
        (each["revision"], each["digest"], each["body"]) == (0, None, None)
        for each in absent.values()
    )


def more_changes_than_a_page_holds_come_as_the_whole(api: ControlApi) -> None:
    world(api)
    following = Following(api, enrolled(api)["sidecar_key"])
    following.poll()
    bodies = [rule(f"r{n}", f"p{n}") for n in range(600)]
    api.admin("PUT", "/v1/policies/candidates/many", {"policies": bodies})
    assert following.poll()["reset"] is True
    assert not any(name.startswith(("candidate/", "role/r")) for name in following.named)


def test_more_changes_than_a_page_holds_are_sent_as_a_whole_set(
    cluster: ControlApi,
) -> None:
    more_changes_than_a_page_holds_come_as_the_whole(cluster)


@pytest.mark.deep(stands_in="test_more_changes_than_a_page_holds_are_sent_as_a_whole_set")
def test_either_database_sends_more_changes_than_a_page_holds_as_a_whole_set(
    either_cluster: ControlApi,
) -> None:
    more_changes_than_a_page_holds_come_as_the_whole(either_cluster)
