"""A company's week on a running control API, for people to look at in the console.

The same seed makes the same week: agents in every status, policies, guardrails, a candidate,
decisions with the shape of working days, sessions, alerts that fired, keys that expire, sidecars,
checkpoints, a hold and an erasure. Ids that the service draws differ.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.control_api import ControlApi
from tests.support.waiting import until

_HOUR = 3600
_DAYS = 5
_BATCH = 24
ROLES = {
    "support_assistant": (["handbook", "products", "rest://files/*"], ["payroll"], "medium"),
    "loan_underwriter": (["contracts", "credit_files", "handbook"], ["payroll"], "high"),
    "hr_analyst": (["payroll", "handbook", "staff_directory"], [], "critical"),
    "marketing_writer": (["products", "press_kit"], ["contracts", "credit_files"], "medium"),
}
SOURCES = {
    "handbook": "low", "products": "medium", "press_kit": "low", "staff_directory": "medium",
    "contracts": "high", "credit_files": "high", "payroll": "critical", "rest://files/q3": "medium",
}  # fmt: skip
AGENTS = {
    "agt_support_web": ("support_assistant", "approved"),
    "agt_support_phone": ("support_assistant", "approved"),
    "agt_underwriter_1": ("loan_underwriter", "approved"),
    "agt_underwriter_2": ("loan_underwriter", "approved"),
    "agt_payroll_check": ("hr_analyst", "approved"),
    "agt_press": ("marketing_writer", "approved"),
    "agt_summaries": ("support_assistant", "pending_approval"),
    "agt_campaigns": ("marketing_writer", "pending_approval"),
    "agt_trial": ("loan_underwriter", "draft"),
    "agt_scraper": ("marketing_writer", "suspended"),
    "agt_old_faq": ("support_assistant", "deprecated"),
}
_ON_THE_WAY = {
    "draft": (),
    "pending_approval": ("pending_approval",),
    "approved": ("pending_approval", "approved"),
    "suspended": ("pending_approval", "approved", "suspended"),
    "deprecated": ("pending_approval", "approved", "deprecated"),
}
_QUESTIONS = (
    "What is the notice period of the Northway contract?", "How long may goods be returned?",
    "Which lots of kettle K2 are recalled?", "Rebate of Aldermoor above 10,000 units?",
    "Grade and pay of employee 1002", "Draft a press release for lamp L4",
)  # fmt: skip
_PEOPLE = ("ann.okafor", "ben.larsen", "chiara.rossi", "daniel.weiss", "eva.novak", "u-1001")


@dataclass
class CompanyWeek:
    """A running API, and the ids that pages and tests need of it."""

    api: ControlApi
    policy_id: str = ""
    """The id of a policy that no file defines, with a history."""
    filed_policy_id: str = ""
    key_id: str = ""
    rule_id: str = ""
    hold_id: str = ""
    impact_id: str = ""
    candidate: str = "next_quarter"
    guardrail: str = "payroll-is-hr-only"
    source_pattern: str = "board_minutes*"
    agent_id: str = "agt_support_web"
    session_id: str = "support-0001"
    tenant_id: str = ""
    """The id of another tenant."""
    tenant_key: str = ""
    allowed: str = ""
    """The id of a decision that allowed."""
    denied: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    """A key of each scope that opens the console, but the superadmin's."""


def policy(role: str, **changed: Any) -> dict[str, Any]:
    """Return a role's policy, as the API takes it."""
    allowed, denied, level = ROLES[role]
    return {
        "name": f"{role}_reads",
        "agent_role": role,
        "allowed_sources": list(allowed),
        "denied_sources": list(denied),
        "max_sensitivity": level,
        **changed,
    }


@contextmanager
def inhabited(
    directory: Path, *, now: float | None = None, **settings: str
) -> Iterator[CompanyWeek]:
    """Make the week. `now` is the time at its end, in seconds since 1970; the real time unless
    given."""
    filed = """\
policies:
  - name: support_assistant_reads
    agent_role: support_assistant
    allowed_sources: [handbook, products, "rest://files/*"]
    denied_sources: [payroll]
    max_sensitivity: medium
    denied_tasks: [bulk_export]
    session_ttl_minutes: 480
"""
    settings = {"SLUICE_CHECKPOINT_SECONDS": "1"} | settings
    api = ControlApi(directory, policies=filed, **settings)
    present = 0.0 if now is None else now - time.time()
    api.time.ahead = present - _DAYS * 24 * _HOUR
    api.start()
    try:
        yield _lived(api, present)
    finally:
        api.stop()


def _lived(api: ControlApi, present: float) -> CompanyWeek:
    chance = random.Random(18)  # a drawn week, and no secret
    world = CompanyWeek(api)
    _write_policies(world)
    _register(world)
    _watch(world)
    _decide(world, chance, present)
    api.time.ahead = present
    _react(world)
    _report(world)
    events = api.events("?limit=1000")
    world.denied = next(e["event_id"] for e in events if e["decision"] == "DENY")
    world.allowed = next(e["event_id"] for e in events if e["decision"] == "ALLOW")
    path = f"/v1/audit/proof/{events[0]['event_id']}"
    until("a checkpoint", lambda: api.call("GET", path).status == 200)
    return world


def _write_policies(world: CompanyWeek) -> None:
    api = world.api
    world.filed_policy_id = api.admin("GET", "/v1/policies")[0]["policy_id"]
    made = {
        role: api.admin("POST", "/v1/policies", policy(role))["policy_id"]
        for role in ROLES
        if role != "support_assistant"
    }
    world.policy_id = made["loan_underwriter"]
    for change in ({"denied_tasks": ["bulk_export"]}, {"session_ttl_minutes": 240}):
        body = {"denied_tasks": ["bulk_export"], **policy("loan_underwriter"), **change}
        api.admin("PUT", f"/v1/policies/{world.policy_id}", body)
    never = {"sources": ["payroll"], "except_roles": ["hr_analyst"]}
    api.admin("POST", "/v1/guardrails", {"name": world.guardrail, "never": never})
    pattern = quote(world.source_pattern, safe="")
    api.admin("PUT", f"/v1/sources/{pattern}", {"sensitivity_level": "critical"})
    wider = policy("marketing_writer", allowed_sources=["products", "press_kit", "handbook"])
    others = [policy(role) for role in ROLES if role != "marketing_writer"]
    path = f"/v1/policies/candidates/{world.candidate}"
    api.admin("PUT", path, {"policies": [*others, wider]})


def _register(world: CompanyWeek) -> None:
    api = world.api
    for agent_id, (role, status) in AGENTS.items():
        named = {"display_name": agent_id[4:].replace("_", " ").capitalize(), "owner": "platform"}
        api.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": role, **named})
        if status != "suspended":
            _bring(api, agent_id, status)
        else:
            _bring(api, agent_id, "approved")
    for scope in ("admin", "read"):
        made = api.admin("POST", "/v1/keys", {"name": f"{scope}s of the platform", "scope": scope})
        world.keys[scope] = made["key"]
    evaluating = {"name": "support agents", "scope": "evaluate", "expires_days": _DAYS + 2}
    world.key_id = api.admin("POST", "/v1/keys", evaluating)["key_id"]
    binding = {"bound_agent_id": "agt_support_web", "permitted_roles": ["support_assistant"]}
    api.admin("PATCH", f"/v1/keys/{world.key_id}/binding", binding)
    old = api.admin("POST", "/v1/keys", {"name": "pilot", "scope": "evaluate"})["key_id"]
    api.admin("DELETE", f"/v1/keys/{old}")
    sidecars = {"name": "sidecars", "scope": "sidecar", "agent_ids": ["*"], "expires_days": 90}
    api.admin("POST", "/v1/keys", sidecars)
    for name in ("acme", "globex"):
        made = api.admin("POST", "/v1/admin/tenants", {"name": name})
        if name == "acme":
            world.tenant_id, world.tenant_key = made["tenant_id"], made["admin_key"]
        else:
            api.admin("DELETE", f"/v1/admin/tenants/{made['tenant_id']}")


def _bring(api: ControlApi, agent_id: str, status: str) -> None:
    for each in _ON_THE_WAY[status]:
        api.admin("PATCH", f"/v1/agents/{agent_id}/status", {"status": each})


def _watch(world: CompanyWeek) -> None:
    for name, kind, threshold in (
        ("many denials", "denial_spike", 10),
        ("share of denials", "high_deny_rate", 60),
        ("sources never read before", "new_source_access", 1),
    ):
        body = {"name": name, "rule_type": kind, "threshold": threshold, "window_minutes": 60}
        world.rule_id = world.api.admin("POST", "/v1/alerts/rules", body)["rule_id"]


def _decide(world: CompanyWeek, chance: random.Random, present: float) -> None:
    """Make the decisions of five days: many in the mornings, few at night, and one agent that goes
    wrong."""
    number = 0
    for hour in range(0, _DAYS * 24, 3):
        world.api.time.ahead = present - (_DAYS * 24 - hour) * _HOUR + chance.random() * 600
        busy = 1.0 if 6 <= hour % 24 < 18 else 0.25
        items = []
        for _ in range(int(_BATCH * busy * (0.7 + 0.3 * chance.random()))):
            number += 1
            items.append(_asked(chance, number))
        if hour == (_DAYS - 1) * 24 - 12:
            items += [_scraped(chance) for _ in range(14)]
        _evaluate(world.api, items)
    # The last quarter of an hour, so that "a minute" has something to show.
    for minute in range(15, 0, -3):
        world.api.time.ahead = present - minute * 60
        _evaluate(world.api, [_asked(chance, number + minute * 8 + each) for each in range(8)])


def _evaluate(api: ControlApi, items: list[dict[str, Any]]) -> None:
    api.admin("POST", "/v1/context/evaluate/batch", {"items": items, "semantics": "all"})


def _asked(chance: random.Random, number: int) -> dict[str, Any]:
    approved = [name for name, (_, status) in AGENTS.items() if status == "approved"]
    others = ["agt_summaries", "agt_campaigns", "agt_old_faq"]
    agent_id = chance.choice(approved if chance.random() < 0.93 else others)
    role = AGENTS[agent_id][0]
    # Usually what it may read; now and then anything.
    own = [name for name in ROLES[role][0] if name in SOURCES]
    source = chance.choice(own if chance.random() < 0.88 else list(SOURCES))
    asked = {
        "agent_role": role,
        "agent_id": agent_id,
        "user_id": chance.choice(_PEOPLE),
        "source_id": source,
        "sensitivity_level": SOURCES[source],
        "query": chance.choice(_QUESTIONS),
    }
    if chance.random() < 0.4:
        who = sorted(AGENTS).index(agent_id)
        asked["session_id"] = f"{role.partition('_')[0]}-{who:02}{number // 60:02}"
        asked["user_id"] = _PEOPLE[who % len(_PEOPLE)]
    if chance.random() < 0.15:
        asked["task_type"] = chance.choice(["review", "summary", "bulk_export"])
    return asked


def _scraped(chance: random.Random) -> dict[str, Any]:
    source = chance.choice(["contracts", "credit_files", "payroll"])
    return {
        "agent_role": "marketing_writer",
        "agent_id": "agt_scraper",
        "user_id": "svc-scraper",
        "source_id": source,
        "sensitivity_level": SOURCES[source],
        "query": "everything",
    }


def _react(world: CompanyWeek) -> None:
    api = world.api
    suspended = {"status": "suspended", "reason": "asked for contracts 14 times in a minute"}
    api.admin("PATCH", "/v1/agents/agt_scraper/status", suspended)
    # An agent that no one has registered introduces itself by asking.
    unknown = {**_asked(random.Random(1), 0), "agent_id": "agt_meeting_notes", "session_id": None}
    _evaluate(api, [{name: value for name, value in unknown.items() if value is not None}])
    first = {"agent_role": "support_assistant", "agent_id": world.agent_id, "user_id": "eva.novak"}
    read = {"source_id": "handbook", "sensitivity_level": "low", "session_id": world.session_id}
    _evaluate(api, [{**first, **read, "query": _QUESTIONS[1]}])
    held = {"object_type": "session", "object_id": world.session_id, "reason": "dispute 2026-9"}
    world.hold_id = api.admin("POST", "/v1/audit/holds", held)["hold_id"]
    api.admin("POST", "/v1/audit/redact", {"user_id": "u-1001", "reason": "request 2026-114"})
    body = {"policies": [policy("marketing_writer", max_sensitivity="low")]}
    world.impact_id = api.admin("POST", "/v1/policies/impact", body)["impact_id"]


def _report(world: CompanyWeek) -> None:
    api = world.api
    held = api.admin("GET", "/v1/sidecars/policy-set?since=0")
    epoch, revision = held["epoch"], held["revision"]
    for number, (agent_id, changed) in enumerate(
        (
            ("agt_support_web", {}),
            ("agt_support_phone", {"policy_set_age_ms": 2100}),
            ("agt_underwriter_1", {"revision": revision - 3, "policy_set_age_ms": 28_000}),
            ("agt_payroll_check", {"spool_depth": 212, "oldest_unshipped_ms": 45_000}),
            ("agt_press", {"version": "0.9.4"}),
        ),
        start=1,
    ):
        report = {
            "sidecar_id": f"sidecar-{number}",
            "run_id": f"9f1c2a7b{number:04}",
            "version": "1.0.0",
            "agent_id": agent_id,
            "agent_role": AGENTS[agent_id][0],
            "epoch": epoch,
            "revision": revision,
            "policy_set_age_ms": 400,
            "spool_depth": 0,
        }
        api.admin("POST", "/v1/sidecars/report", {**report, **changed})
