"""The decision tables of `tests/tables`: each row's decision, its findings, and its record."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from policies.checks.finding import Facts
from policies.checks.order import CALL, CLAUSE, NAMES
from policies.definitions.model import Agent, Key, Policy, Session, TenantSettings
from policies.evaluate import Decision, admitted, evaluate, gather
from policies.ground.canonical import check
from policies.retrieval import Retrieval, parse_retrieval
from policies.sets.policy_set import (
    PolicySet,
    agent_document,
    document_digest,
    role_document,
    tenant_document,
)
from policies.trail.record import decision_record

TABLES = Path(__file__).parents[1] / "tables"
DEFAULTS = yaml.safe_load((TABLES / "defaults.yaml").read_text())
LETTERS = {"passed": "p", "skipped": "s", "failed": "F", "not_reached": "."}
SALT = bytes(range(32))
Row = dict[str, Any]


def rows() -> list[tuple[str, Row]]:
    found = []
    for path in sorted(TABLES.glob("*.yaml")):
        table = yaml.safe_load(path.read_text())
        for row in table.get("rows", ()):
            laid = [table.get("given", {}), *(table["overlays"][o] for o in row.get("with", ()))]
            world: Row = DEFAULTS
            for overlay in (*laid, {k: v for k, v in row.items() if k != "with"}):
                world = over(world, overlay)
            found.append((f"{path.stem}: {row['claim']}", world))
    return found


def over(world: Row, overlay: Row) -> Row:
    """`overlay` applied to `world`: mappings by member, everything else replaced."""
    merged = dict(world)
    for key, value in overlay.items():
        old = merged.get(key)
        mappings = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = over(old or {}, value) if mappings else value
    return merged


ROWS = rows()


def policies_of(world: Row) -> list[Policy]:
    """The row's `policies`, or its one `policy`."""
    defaults = world["policy_defaults"]
    given = world.get("policies", [world["policy"]])
    return [
        Policy.from_wire({"policy_id": f"pol_{each['name']}", "version": 3, **defaults, **each})
        for each in given
    ]


def facts_of(world: Row, call: Retrieval) -> Facts:
    """As both services gather them: from documents, then the session if it may be claimed."""
    documents = {
        "tenant": tenant_document(TenantSettings("t", **world["tenant"])),
    }
    for agent_id, wire in world["agents"].items():
        if wire is not None:
            documents[f"agent/{agent_id}"] = agent_document(
                Agent.from_wire({"agent_id": agent_id, **wire})
            )
    policies = policies_of(world)
    for role in {policy.agent_role for policy in policies}:
        document = role_document([each for each in policies if each.agent_role == role])
        assert document is not None
        documents[f"role/{role}"] = document
    policy_set = PolicySet(documents.get)
    policy_set.apply((), 41)
    facts = gather(policy_set, Key.from_wire(world["key"]), call)
    stored = world["sessions"].get(call.session_id)
    if stored is not None and admitted(call, facts):
        facts = facts._replace(session=Session(call.session_id or "", **stored))
    return facts


@pytest.mark.parametrize("world", [row for _, row in ROWS], ids=[name for name, _ in ROWS])
def test_each_row_of_the_tables_is_decided_and_recorded_as_it_states(world: Row) -> None:
    then, call = world["then"], parse_retrieval(world["call"])
    facts = facts_of(world, call)
    decision = evaluate(call, facts)
    verdict = "ALLOW" if "ALLOW" in then else "DENY"
    assert (decision.decision, decision.policy_name, decision.check) == (
        verdict,
        then[verdict],
        then.get("check"),
    )
    assert "".join(LETTERS[each.outcome.value] for each in decision.findings) == then["findings"]
    for part in then.get("says", ()):
        assert part in decision.reason
    assert "ann@example.com" not in decision.reason
    shape(decision)
    frozen = world["tenant"]["frozen_at"] is not None
    assert admitted(call, facts) == ("F" not in then["findings"][:4] and not frozen)
    record(world, call, facts, decision)


def shape(decision: Decision) -> None:
    """Ten findings in order: passed or skipped, at most one failed, then not reached."""
    outcomes = [finding.outcome.value for finding in decision.findings]
    assert len(outcomes) == 10
    reached = [o for o in outcomes if o != "not_reached"]
    assert outcomes == reached + ["not_reached"] * (10 - len(reached))
    assert all(o in ("passed", "skipped") for o in reached[:-1])
    if decision.decision == "ALLOW":
        assert reached[-1] == "passed"
        assert len(reached) == 10
        assert decision.check is None
    else:
        if decision.policy_name == "tenant_frozen":
            assert (reached, decision.check) == ([], None)
            return
        assert reached[-1] == "failed"
        assert decision.check == NAMES[len(reached) - 1]
        last = decision.findings[len(reached) - 1]
        assert (last.policy_name, last.reason) == (decision.policy_name, decision.reason)


def record(world: Row, call: Retrieval, facts: Facts, decision: Decision) -> None:
    """The record's bytes are canonical, and hold the request, the decision and the facts."""
    made = decision_record(call, decision, facts, event_id="event-1", salt=SALT)
    raw = made.entry("t", 0, "", "2026-01-01T00:00:00.000000Z")
    entry = orjson.loads(raw)
    check(entry)
    assert orjson.dumps(entry, option=orjson.OPT_SORT_KEYS) == raw
    assert entry.keys() == {"cm", "eid", "kind", "log", "masked", "prev", "pub", "seq", "ts", "v"}
    pub = entry["pub"]
    assert pub.keys() == {"context_hash", "facts", "request", "response"}

    asked = {key: value for key, value in world["call"].items() if value is not None}
    clear = ("agent_role", "source_id", "sensitivity_level", "session_id", "task_type", "agent_id")
    request = {"source_type": "api"} | {key: asked[key] for key in clear if key in asked}
    if "source_type" in asked:
        request["source_type"] = asked["source_type"]
    assert pub["request"] == request

    response: dict[str, Any] = {
        "policy_name": decision.policy_name,
        "reason": decision.reason,
    }
    then = world["then"]
    response["decision"] = "ALLOW" if "ALLOW" in then else "DENY"
    if "check" in then:
        response["check"] = then["check"]
    if "ALLOW" in then or then.get("check") in NAMES[6:]:
        response |= {"policy_id": f"pol_{decision.policy_name}", "policy_version": 3}
    assert pub["response"] == response

    assert pub["facts"] == known(world, call)

    personal = {"user_id": asked["user_id"]} | (
        {"query": asked["query"]} if "query" in asked else {}
    )
    openings = orjson.loads(made.openings)
    assert {path: value for path, (_, value) in openings.items()} == personal
    assert entry["cm"].keys() == personal.keys()
    assert not any(value.encode() in raw for value in personal.values())
    if "context_hash" in asked:
        assert pub["context_hash"] == asked["context_hash"]
    else:
        parts = (orjson.dumps(part, option=orjson.OPT_SORT_KEYS) for part in (request, entry["cm"]))
        context = hashlib.sha256(b"audit/context/v1\0" + b"".join(parts))
        assert pub["context_hash"] == context.hexdigest()


def known(world: Row, call: Retrieval) -> Row:
    """The facts that the record must cite."""
    facts: Row = {
        "key": {**world["key"]},
        "require_agent_id": world["tenant"]["require_agent_id"],
        "revision": 41,
    }
    agent = world["agents"].get(call.agent_id)
    if agent is not None:
        facts["agent"] = {"agent_id": call.agent_id, **agent}
    frozen_at = world["tenant"]["frozen_at"]
    if frozen_at is not None:
        facts["frozen_at"] = frozen_at
    same = [policy for policy in policies_of(world) if policy.agent_role == call.agent_role]
    if same:
        facts["role"] = document_digest(role_document(same) or b"")
    session = world["sessions"].get(call.session_id)
    admitted = frozen_at is None and "F" not in world["then"]["findings"][:4]
    if session is not None and admitted:
        facts["session"] = {"session_id": call.session_id, **session}
    return facts


def test_the_tables_have_enough_rows() -> None:
    assert len(ROWS) >= 220


def test_every_claim_is_made_once() -> None:
    assert [name for name, times in Counter(name for name, _ in ROWS).items() if times > 1] == []


def test_every_denial_of_the_contract_is_in_the_tables() -> None:
    given = {world["then"].get("DENY") for _, world in ROWS} - {None}
    assert given >= {
        "agent_id_required", "agent_not_registered", "agent_not_approved", "role_not_permitted",
        "key_role_restriction", "key_agent_binding", "session_revoked", "session_expired",
        "session_agent_mismatch", "default_deny", "tenant_frozen",
    }  # fmt: skip


def test_every_pair_of_checks_that_can_both_fail_is_in_the_tables() -> None:
    """The checks that would fail if the earlier ones had passed."""
    seen = set()
    for _, world in ROWS:
        failing = sorted(alone(world))
        seen |= {(a, b) for a in failing for b in failing if a < b}
    impossible = {(1, 2), (6, 7), (6, 8), (6, 9), (6, 10)}
    pairs = {(a, b) for a in range(1, 11) for b in range(a + 1, 11)}
    assert seen == pairs - impossible


def alone(world: Row) -> set[int]:
    """The numbers of the checks that fail in this row, each evaluated alone."""
    call = parse_retrieval(world["call"])
    facts = facts_of(world, call)
    stored = world["sessions"].get(call.session_id)
    if stored is not None:
        facts = facts._replace(session=Session(call.session_id or "", **stored))
    failing = {
        number for number, each in enumerate(CALL, 1) if each(call, facts).outcome.value == "failed"
    }
    if facts.role is not None and len(facts.role.clauses) == 1:
        clause = facts.role.clauses[0]
        failing |= {
            number
            for number, each in enumerate(CLAUSE, 7)
            if each(call, clause).outcome.value == "failed"
        }
    return failing
