"""What a running service records is derived again from its log and the documents that it kept; and
an insider who rewrites a verdict is found by it, whatever key signs the log."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from control_api.log.scheduled.rederivation import Derivations
from policies.ground.canonical import encode
from policies.trail.findings import Finding, Reason
from policies.trail.recompute.recomputer import RecomputeCounts, Recomputer
from tests.support.control_api import ControlApi
from tests.support.open_store import opened, sql


def rows_of(api: ControlApi, statement: str) -> list[Any]:
    return asyncio.run(sql(api.settings.database_url, statement))


def walked(
    api: ControlApi, change: dict[str, Any] | None = None
) -> tuple[Recomputer, list[Finding]]:
    """`change` replaces the response of the last decision, as someone would who then makes every
    hash after it anew."""
    kept = rows_of(api, "SELECT digest, body FROM cited_documents")
    bodies = {row.digest: bytes(row.body) for row in kept}
    rows = rows_of(api, "SELECT entry FROM log_entries WHERE tenant_id = 'default' ORDER BY seq")
    entries = [orjson.loads(bytes(row.entry)) for row in rows]
    if change is not None:
        last = next(each for each in reversed(entries) if each["kind"] == "decision")
        last["pub"]["response"] |= change
        assert encode(last)
    recomputer = Recomputer(bodies.get)
    return recomputer, [each for each in map(recomputer.feed, entries) if each is not None]


def a_day(api: ControlApi) -> None:
    """Ten decisions, and every kind of change between them that they depend on."""
    agent = api.approved("agt_a")
    bound = api.new_key()
    assert api.evaluate(bound, agent_id=agent)["decision"] == "ALLOW"
    [key] = [each for each in api.admin("GET", "/v1/keys") if each["scope"] == "evaluate"][:1]
    api.admin("PATCH", f"/v1/keys/{key['key_id']}/binding", {"bound_agent_id": agent})
    api.evaluate(bound, agent_id="agt_x")
    api.evaluate(session_id="s-1")
    api.admin("DELETE", "/v1/sessions/s-1")
    assert api.evaluate(session_id="s-1")["policy_name"] == "session_revoked"
    api.admin("PATCH", f"/v1/agents/{agent}/status", {"status": "suspended"})
    assert api.evaluate(agent_id=agent)["policy_name"] == "agent_not_approved"
    [policy] = api.admin("GET", "/v1/policies")[:1]
    path = f"/v1/policies/{policy['policy_id']}"
    body = {name: policy[name] for name in ("name", "agent_role", "max_sensitivity")}
    lists = {"allowed_sources": ["other"], "denied_sources": []}
    api.admin("PUT", path, {**body, **lists})
    assert api.evaluate()["decision"] == "DENY"
    api.admin("DELETE", path)
    assert api.evaluate()["policy_name"] == "default_deny"
    api.admin("POST", f"{path}/restore")
    assert api.evaluate()["decision"] == "ALLOW"
    api.admin("POST", "/v1/freeze", {"reason": "an incident"})
    assert api.evaluate()["policy_name"] == "tenant_frozen"
    api.admin("DELETE", "/v1/freeze")
    api.admin("POST", f"/v1/keys/{key['key_id']}/rotate")
    assert api.evaluate()["decision"] == "ALLOW"


@pytest.mark.deep(stands_in="test_a_day_is_derived_again_by_one_process_or_by_two")
def test_a_day_of_changes_and_decisions_is_derived_again(either: ControlApi) -> None:
    a_day(either)
    recomputer, found = walked(either)
    assert found == []
    assert (recomputer.counts.recomputed, recomputer.counts.not_recomputable) == (10, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"decision": "ALLOW"},
        {"reason": "the source `payroll` is not in the list"},
        {"policy_name": "payroll-reads"},
        {"policy_version": 2},
    ],
)
def test_a_rewritten_verdict_is_found(api: ControlApi, change: dict[str, Any]) -> None:
    assert api.evaluate(source_id="payroll")["decision"] == "DENY"
    [finding] = walked(api, change)[1]
    assert finding.reason is Reason.DECISION_DIFFERS


def test_a_day_is_derived_again_by_one_process_or_by_two(api: ControlApi) -> None:
    a_day(api)
    recomputer, found = walked(api)
    assert found == []
    assert recomputer.counts.recomputed >= 10
    assert recomputer.counts.not_recomputable == 0
    first, second = asyncio.run(halves(api))
    assert first.recomputed + second.recomputed == recomputer.counts.recomputed
    assert (second.findings, second.not_recomputable) == (0, 0)


async def halves(api: ControlApi) -> list[RecomputeCounts]:
    """How the decisions of each half of the log end, derived by a process of its own."""
    query = "SELECT seq, kind, entry FROM log_entries WHERE tenant_id = 'default' ORDER BY seq"
    counted = []
    async with opened(api.settings.database_url) as world:
        rows = await world.rows(query)
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            derivation = await Derivations(world.store, 0).at("default", 0, half[0].seq, 0)
            await derivation.follow(half)
            counted.append(derivation.take_counts())
    return counted
