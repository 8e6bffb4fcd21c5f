"""A promotion is one transaction: by one set or the other, whatever happens meanwhile."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import Any

import pytest

from control_api.policy import candidates, policy_change
from tests.control_api.policy.test_candidates import (
    OPEN,
    READS,
    ROUTE,
    STRICT,
    counts,
    entries,
    published,
)
from tests.support.control_api import ControlApi

OTHER = READS | {"name": "other", "agent_role": "auditor"}


def state(api: ControlApi) -> Any:
    """What a promotion changes."""
    page = api.admin("GET", "/v1/sidecars/policy-set")
    held = (page["revision"], page["documents"])
    return (api.admin("GET", "/v1/policies"), api.admin("GET", ROUTE), held)


@pytest.mark.deep(
    stands_in="tests/deploy/commands/policy/test_candidate.py::test_a_promotion_that_breaks_a_guardrail_is_refused"
)
def test_a_guardrail_refuses_a_promotion_and_nothing_changes(either_tenant: ControlApi) -> None:
    api = either_tenant
    never = {"sources": ["payroll*"]}
    api.admin("POST", "/v1/guardrails", {"name": "no-payroll", "never": never})
    published(api, "next", OPEN)  # it decides nothing, so it may be tried
    before = state(api)
    refused = api.call("POST", f"{ROUTE}/next/promote")
    assert refused.status == 409, refused.raw
    details = json.loads(refused.body["details"])
    assert details["guardrail"] == "no-payroll"
    assert details["counterexample"]["agent_role"] == "support"
    assert state(api) == before
    assert api.evaluate(source_id="payroll")["decision"] == "DENY"
    assert counts(api, "next")["newly_allowed"] == 1


def test_a_promotion_that_fails_at_its_end_changes_nothing(
    tenant: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(tenant, "next", STRICT, OTHER)
    before = state(tenant)

    async def fail(*_: object) -> None:
        raise RuntimeError("as if the process had been killed")

    with monkeypatch.context() as patch:
        patch.setattr(candidates, "put_list", fail)
        assert tenant.call("POST", f"{ROUTE}/next/promote").status == 500
    assert state(tenant) == before
    assert tenant.evaluate(source_id="contracts")["decision"] == "ALLOW"


@pytest.mark.deep(stands_in="test_a_promotion_that_fails_at_its_end_changes_nothing")
@pytest.mark.parametrize("step", ["record", "drop", "put_list"])
def test_a_promotion_that_fails_in_the_middle_changes_nothing(
    either: ControlApi, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    api = either
    published(api, "next", STRICT, OTHER)
    api.evaluate(source_id="contracts")
    before = state(api)

    async def fail(*_: object) -> None:
        raise RuntimeError("as if the process had been killed")

    with monkeypatch.context() as patch:
        patch.setattr(policy_change if step == "record" else candidates, step, fail)
        assert api.call("POST", f"{ROUTE}/next/promote").status == 500
    assert state(api) == before
    assert api.evaluate(source_id="contracts")["decision"] == "ALLOW"
    assert counts(api, "next")["newly_denied"] == 2
    api.admin("POST", f"{ROUTE}/next/promote")
    assert api.evaluate(source_id="contracts")["decision"] == "DENY"
    api.verified()


def test_each_decision_under_load_is_by_one_set_or_the_other(either_tenant: ControlApi) -> None:
    api = either_tenant
    published(api, "next", STRICT, OTHER)
    stop, begun = threading.Event(), threading.Barrier(5)

    def both() -> None:
        api.evaluate(source_id="contracts")
        api.evaluate(source_id="contracts", agent_role="auditor")

    def load() -> None:
        both()  # by the old set, however long each takes
        begun.wait(30)
        while not stop.is_set():
            both()

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(30)
    done = api.admin("POST", f"{ROUTE}/next/promote")
    assert (done["added"], done["updated"], done["removed"]) == (["other"], ["support-reads"], [])
    assert api.admin("GET", ROUTE) == []
    active = {each["name"]: each for each in api.admin("GET", "/v1/policies")}
    assert active.keys() == {"support-reads", "other"}
    assert all(each["user_modified"] for each in active.values())
    path = f"/v1/policies/{active['support-reads']['policy_id']}/history"
    assert api.admin("GET", path)[0]["change"] == "updated"
    for role, verdict in (("support", "DENY"), ("auditor", "ALLOW")):
        assert api.evaluate(source_id="contracts", agent_role=role)["decision"] == verdict
    stop.set()
    for thread in threads:
        thread.join(30)
    verdicts: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    revisions: dict[bool, set[int]] = defaultdict(set)
    for entry in entries(api):
        pub = entry["pub"]
        role, facts = pub["request"]["agent_role"], pub["facts"]
        verdicts[role, facts.get("role")].add(pub["response"]["decision"])
        after = (role == "auditor") == (pub["response"]["decision"] == "ALLOW")
        revisions[after].add(facts["revision"])
        # Before, the candidate decides otherwise in both roles; after, there is none.
        assert ("candidates" in pub) != after
    # A set's document decides one way, and the old set's revisions end before the new one's begin.
    assert sorted(map(len, verdicts.values())) == [1] * 4
    assert max(revisions[False]) < min(revisions[True])
    api.verified()
