"""What must hold after a fault, read back from the database and from the API.

once        every answered decision is in the log exactly once, no other more than once, and
            where a source's numbers have a hole, a gap says so
chain       the log verifies
policy      every decision is what the pure evaluation gives, by a policy that was in force
            within the staleness limit
revoked     nothing is allowed by what was revoked longer ago than the limit
session     no session is owned by two agents
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import orjson

from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, Policy, Session, TenantSettings
from policies.evaluate import evaluate, gather
from policies.retrieval import parse_retrieval
from policies.sets.policy_set import (
    PolicySet,
    agent_document,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from tests.chaos.history import Answered, History, Version
from tests.chaos.system import LIMIT, ROLES, SOURCES, System

SLACK = 2.0
"""Seconds that a busy machine may add to the limit before a decision counts as wrong."""
OUTSIDE = frozenset({"policy_set_stale", "evaluation_error", "audit_unavailable", "key_not_valid"})
"""Denials that no policy decided."""


@dataclass
class Findings:
    """What was read, and a description of each broken promise."""

    recorded: int = 0
    duplicates: int = 0
    wrong: int = 0
    gaps: int = 0
    broken: list[str] = field(default_factory=list)

    def break_(self, promise: str, what: str) -> None:
        self.broken.append(f"{promise}: {what}")


async def read_back(system: System, history: History) -> Findings:
    """Read everything since the system started."""
    found = Findings()
    rows = await _rows(system)
    _once(found, history, rows)
    _sources(found, rows)
    status, report = await asyncio.to_thread(system.admin, "GET", "/v1/audit/verify", timeout=120)
    if status != 200 or not report["valid"]:
        found.break_("chain", f"{report.get('broken_at')}: {report.get('reason')}")
    versions = await asyncio.to_thread(_versions, system, history)
    for row in rows:
        if row["kind"] == "decision":
            entry = orjson.loads(row["entry"])
            answered = history.answered.get(row["eid"])
            _decided(found, entry, answered, versions)
    _revoked(found, history)
    _sessions(found, history)
    return found


async def _rows(system: System) -> list[Any]:
    url = system.postgres.url("super", system.postgres.port).replace("+asyncpg", "")
    connection = await asyncpg.connect(url)
    try:
        return list(
            await connection.fetch(
                "SELECT e.seq, e.eid, e.kind, e.entry, o.user_id FROM log_entries e"
                " LEFT JOIN openings o USING (tenant_id, seq)"
                " WHERE e.tenant_id = 'default' ORDER BY e.seq"
            )
        )
    finally:
        await connection.close()


def _once(found: Findings, history: History, rows: Iterable[Any]) -> None:
    decisions = [row for row in rows if row["kind"] == "decision"]
    events = Counter(row["eid"] for row in decisions)
    requests = Counter(row["user_id"] for row in decisions)
    found.recorded = len(decisions)
    twice = [each for each in (*events.items(), *requests.items()) if each[1] > 1]
    found.duplicates = len(twice)
    for name, count in twice[:3]:
        found.break_("once", f"{name} is recorded {count} times")
    missing = history.answered.keys() - events.keys()
    for event_id in sorted(missing)[:3]:
        found.break_(
            "once", f"{event_id} was answered and is not recorded ({len(missing)} are not)"
        )


def _sources(found: Findings, rows: Iterable[Any]) -> None:
    """Each instance counts from 0 without a hole, and each but a source's first begins with a gap
    that gives the reason."""
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        entry = orjson.loads(row["entry"])
        src = entry.get("src")
        if src is None:
            continue
        found.gaps += entry["kind"] == "gap"
        instance = (src["id"], src["inst"])
        expected = seen.get(instance, -1) + 1
        if src["n"] != expected:
            found.break_("once", f"{instance}: record {src['n']} follows {expected - 1}")
        first = instance not in seen and any(source == src["id"] for source, _ in seen)
        if first and entry["kind"] != "gap":
            found.break_("once", f"{instance}: a new instance begins without a gap")
        seen[instance] = src["n"]


def _versions(system: System, history: History) -> dict[int, list[Version]]:
    """Every version that the changing policy ever had, acknowledged or not."""
    (policy,) = system.must("GET", "/v1/policies?agent_role=moving")
    rows = system.must("GET", f"/v1/policies/{policy['policy_id']}/history?limit=1000")
    found = {version: list(each) for version, each in history.policies.items()}
    for row in rows:
        sources = tuple(row["policy"]["allowed_sources"])
        known = found.setdefault(row["version"], [])
        if sources not in {each.sources for each in known}:
            known.append(Version(sources, 0.0))
    return found


def _decided(
    found: Findings,
    entry: dict[str, Any],
    answered: Answered | None,
    versions: dict[int, list[Version]],
) -> None:
    request, response = entry["pub"]["request"], entry["pub"]["response"]
    outcome = response["decision"], response["policy_name"]
    if answered is not None and (answered.decision, answered.policy_name) != outcome:
        found.wrong += 1
        found.break_("policy", f"{entry['eid']} was answered {answered[3:5]}, recorded {outcome}")
    version = response.get("policy_version")
    if outcome[0] == "DENY" and (outcome[1] in OUTSIDE or outcome[1] == "default_deny"):
        return
    if request["agent_role"] != "moving" or version is None:
        if (again := _again(entry, SOURCES)) != outcome:
            found.wrong += 1
            found.break_("policy", f"{entry['eid']} is {outcome}, and should be {again}")
        return
    known = versions.get(version, [])
    if not any(_again(entry, each.sources) == outcome for each in known):
        found.wrong += 1
        meant = [each.sources for each in known]
        found.break_("policy", f"{entry['eid']} is {outcome}; version {version} allows {meant}")
    if answered is not None and known:
        _in_time(found, entry["eid"], answered, known)


def _in_time(found: Findings, eid: str, answered: Answered, known: list[Version]) -> None:
    if answered.sent > max(each.replaced for each in known) + LIMIT + SLACK:
        found.wrong += 1
        found.break_("policy", f"{eid} goes by a version that was replaced long before")
    if answered.heard < min(each.asked for each in known):
        found.wrong += 1
        found.break_("policy", f"{eid} goes by a version before it was made")


def _again(entry: dict[str, Any], sources: tuple[str, ...]) -> tuple[str, str]:
    """The pure evaluation's decision on the recorded request."""
    pub = entry["pub"]
    request, facts = pub["request"], pub["facts"]
    steady = Policy("pol", 1, "steady", "steady", SOURCES, (), "high")
    moving = Policy("pol", 1, "moving", "moving", sources, (), "high")
    documents = {
        "tenant": tenant_document(TenantSettings("default")),
        role_name("steady"): role_document([steady]),
        role_name("moving"): role_document([moving]),
        agent_name(request["agent_id"]): agent_document(
            Agent(request["agent_id"], "approved", ROLES)
        ),
        key_name(b"k"): key_document(Key("key", "evaluate")),
    }
    policy_set = PolicySet(documents.get)
    policy_set.apply([], 1)
    key = policy_set.key(b"k")
    assert key is not None
    retrieval = parse_retrieval({**request, "user_id": "u"})
    whole = gather(policy_set, key, retrieval)
    session = (facts or {}).get("session")
    if session is not None:
        owned = Session(
            request["session_id"], session["state"], session["agent_role"], session.get("agent_id")
        )
        whole = Facts(whole[0], whole[1], whole[2], owned, whole[4], whole[5])
    decision = evaluate(retrieval, whole)
    return decision.decision, decision.policy_name


def _revoked(found: Findings, history: History) -> None:
    for each in history.answered.values():
        if each.decision != "ALLOW":
            continue
        for what, since in (
            ("key", history.dead_keys.get(each.key)),
            ("session", history.dead_sessions.get(each.asked.get("session_id", ""))),
        ):
            if since is not None and each.sent > since + LIMIT + SLACK:
                found.wrong += 1
                late = each.sent - since
                found.break_("revoked", f"{each.event_id} by a {what} revoked {late:.1f} s before")


def _sessions(found: Findings, history: History) -> None:
    owners: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for each in history.answered.values():
        session = each.asked.get("session_id")
        if session is not None and each.decision == "ALLOW":
            owners[session].add((each.asked["agent_role"], each.asked["agent_id"]))
    for session, several in owners.items():
        if len(several) > 1:
            found.break_("session", f"`{session}` is owned by {sorted(several)}")
