"""Recorded traffic of every kind, and what other policies would make of it, decided by hand."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from policies.checks.finding import Facts
from policies.definitions.model import RANK, Agent, Key, Policy, Sensitivity, TenantSettings
from policies.evaluate import Decision, evaluate, refuse
from policies.retrieval import Retrieval
from policies.sets.role import compile_role
from policies.trail.recompute.facts import read_facts
from policies.trail.record import REPORT_PREFIX, Record, decision_record
from tests.support.control_api import ControlApi, asked
from tests.support.open_store import Spool, action, event_id, sql

SOURCES = ("handbook", "contracts", "payroll", "rest://files/a", "rest://files/b", "wiki")
LEVELS: tuple[Sensitivity, ...] = ("low", "medium", "high", "critical")
TOMORROW: list[dict[str, Any]] = [
    {
        "name": "support-wiki",
        "agent_role": "support",
        "allowed_sources": ["wiki", "handbook", "rest://files/*"],
        "denied_sources": ["rest://files/b"],
        "max_sensitivity": "medium",
        "denied_tasks": ["answer"],
    },
    {
        "name": "auditors",
        "agent_role": "auditor",
        "allowed_sources": ["*"],
        "denied_sources": [],
        "max_sensitivity": "critical",
        "permitted_agent_ids": ["agt_1"],
    },
]


def record_all(api: ControlApi, decisions: int, seed: int = 6) -> None:
    """Decisions of the control API and of a sidecar, with everything that may stand beside them."""
    rng = random.Random(seed)
    for number in range(3):
        api.approved(f"agt_{number}")
    bound = api.new_key()
    [key_id] = [
        each["key_id"] for each in api.admin("GET", "/v1/keys") if each["scope"] == "evaluate"
    ]
    api.admin("PATCH", f"/v1/keys/{key_id}/binding", {"bound_agent_id": "agt_2"})
    api.admin("PATCH", "/v1/agents/agt_0/status", {"status": "suspended"})
    api.admin("PATCH", "/v1/admin/tenants/default/settings", {"pii_masking": True})
    for at in range(0, decisions, 100):
        items = [_asked(rng) for _ in range(min(100, decisions - at))]
        key = bound if rng.random() < 0.1 else api.admin_key
        answer = api.call("POST", "/v1/context/evaluate/batch", {"items": items}, key=key)
        assert answer.status == 200, answer.raw
    event = api.evaluate()["event_id"]
    lineage = {"event_id": event, "action_type": "sent", "detail": {"to": "bob"}}
    api.admin("POST", "/v1/audit/lineage", lineage)
    api.admin("POST", "/v1/audit/redact", {"event_ids": [event], "reason": "asked for"})
    api.admin("POST", "/v1/freeze", {"reason": "an incident"})
    api.evaluate()
    api.admin("DELETE", "/v1/freeze")
    ship(api, [*_shipped(rng), action(event, bytes(32), 1)])


def ship(api: ControlApi, records: Iterable[Record], source: str = "sidecar-1") -> None:
    """Deliver records as a sidecar does."""
    spool = Spool(source)
    sent = [spool.record(each) for each in records]
    batch = {"source": spool.source, "instance": spool.instance, "records": sent}
    api.admin("POST", "/v1/sidecars/events", batch)


def _asked(rng: random.Random) -> dict[str, Any]:
    return asked(
        agent_role=rng.choice(("support", "support", "auditor")),
        agent_id=rng.choice((None, "agt_0", "agt_1", "agt_2", "agt_x")),
        source_id=rng.choice(SOURCES),
        sensitivity_level=rng.choice(LEVELS),
        task_type=rng.choice((None, None, "answer", "marketing")),
        session_id=rng.choice((None, None, f"s-{rng.randrange(20)}")),
        user_id=f"ann{rng.randrange(9)}@example.com",
    )


def _shipped(rng: random.Random) -> Iterable[Record]:
    """What a sidecar records: real decisions, such as were made outside of the checks, and such as
    only another version could record."""
    today = Policy("pol_1", 3, "support-reads", "support", ("handbook", "wiki"), (), "high")
    facts = Facts(
        TenantSettings("default"),
        Key("key_1", "evaluate"),
        Agent("agt_1", "approved", ("support",)),
        None,
        compile_role("support", [today]),
        7,
    )
    for _ in range(60):
        retrieval = Retrieval(
            "support", "ann", rng.choice(SOURCES), rng.choice(LEVELS), agent_id="agt_1"
        )
        decision = evaluate(retrieval, facts)
        if decision.decision == "DENY" and rng.random() < 0.5:
            decision = decision._replace(reason=REPORT_PREFIX + decision.reason)
        yield _record(retrieval, decision, facts)
    some = Retrieval("support", "ann", "handbook", "low")
    for name in ("policy_set_stale", "key_not_valid", "evaluation_error"):
        yield _record(some, refuse(name, "for a test"), None)
    for check in ("astrology", None):
        strange = refuse("someone", "for a test")._replace(check=check)
        yield _record(some, strange, facts)
    secret = some._replace(sensitivity_level="secret")  # type: ignore[arg-type]  # an unknown one
    allowed = evaluate(some, facts._replace(agent=None))
    yield _record(secret, allowed, facts._replace(agent=None))
    masked = _record(some, allowed, facts._replace(settings=TenantSettings("", pii_masking=True)))
    yield masked._replace(masked=b'[["source_id","NAME"]]')


def _record(retrieval: Retrieval, decision: Decision, facts: Facts | None) -> Record:
    return decision_record(retrieval, decision, facts, event_id=event_id(), salt=b"s" * 32)


def entries_of(api: ControlApi) -> list[dict[str, Any]]:
    statement = "SELECT entry FROM log_entries WHERE tenant_id = 'default' ORDER BY seq"
    rows = asyncio.run(sql(api.settings.database_url, statement))
    return [orjson.loads(bytes(row.entry)) for row in rows]


def by_hand(entries: Iterable[dict[str, Any]], policies: list[dict[str, Any]]) -> dict[str, Any]:
    """What a run must count: each decision by all ten checks, from the facts of its entry."""
    by_role: dict[str, list[Policy]] = {}
    for each in policies:
        policy = Policy.from_wire({**each, "policy_id": "", "version": 0})
        by_role.setdefault(policy.agent_role, []).append(policy)
    roles = {name: compile_role(name, some) for name, some in by_role.items()}
    counts, why = Counter[str](), Counter[str]()
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for entry in entries:
        counts["entries"] += 1
        if entry["kind"] != "decision":
            continue
        counts["read"] += 1
        if reason := _why_not(entry):
            why[reason] += 1
            continue
        recorded, before = read_facts(entry), entry["pub"]["response"]
        role = roles.get(recorded.retrieval.agent_role)
        after = evaluate(recorded.retrieval, recorded.facts(role))
        names = (before["policy_name"], after.policy_name)
        direction = "unchanged"
        if before["decision"] != after.decision:
            direction = "newly_denied" if after.decision == "DENY" else "newly_allowed"
        counts[direction] += 1
        if direction != "unchanged" or names[0] != names[1]:
            asked = recorded.retrieval
            key = (asked.agent_role, asked.source_id, direction, *names)
            decided_at = entry["src"]["t"] if "src" in entry else entry["ts"]
            groups.setdefault(key, []).append((decided_at, entry["eid"]))
    return {
        "counts": dict(counts),
        "unreplayable": dict(why),
        "groups": {key: _group(some) for key, some in groups.items()},
    }


def _why_not(entry: dict[str, Any]) -> str | None:
    pub = entry["pub"]
    response = pub["response"]
    if not pub["facts"]:
        return "no_facts"
    if response.get("check") == "astrology" or response["policy_name"] == "someone":
        return "unknown_check"
    if pub["request"]["sensitivity_level"] not in RANK:
        return "unknown_level"
    return "masked" if ["source_id", "NAME"] in entry["masked"] else None


def _group(decisions: list[tuple[str, str]]) -> tuple[int, str, str, tuple[str, ...]]:
    times = [decided_at for decided_at, _ in decisions]
    return len(decisions), min(times), max(times), tuple(eid for _, eid in decisions[:5])


def as_counted(shown: dict[str, Any]) -> dict[str, Any]:
    """A run's answer in the form of `by_hand`."""
    groups = {
        (
            each["agent_role"],
            each["source_id"],
            each["direction"],
            each["policy_name_before"],
            each["policy_name_after"],
        ): (each["count"], each["first"], each["last"], tuple(each["example_event_ids"]))
        for each in (*shown["groups"], *shown["renamed"]["groups"])
    }
    names = ("entries", "read", "unchanged", "newly_denied", "newly_allowed")
    return {
        "counts": {name: shown[name] for name in names if shown[name]},
        "unreplayable": {each["why"]: each["count"] for each in shown["unreplayable"]},
        "groups": groups,
    }
