"""An installation of the previous version, as an operator leaves it for an upgrade: policies,
agents, keys of every scope, sessions, a log that began weeks ago, and a purge of its beginning."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.compatibility.previous import (
    control_command,
    days_ago,
    new_agent,
    new_key,
    of_version,
    prepare,
)
from tests.support.stack import Stack, call

OTHER_AGENT = "agt_other"
HAND_MADE = "made by hand"
"""The name of a sidecar's key beside the one that the sidecar uses."""
ONLY_FOR = "support-exports"
"""A policy that names its agent, and comes from no file."""
LISTS = ("agents", "keys", "policies", "sessions", "alerts/rules")
_FORTY, _TWENTY = 40, 20


@dataclass
class Left:
    """The secrets of an installation, and what its version answered last."""

    admin_key: str
    superadmin_key: str
    keys: dict[str, str]
    """By name: `read`, `evaluate`, `admin`, `sidecar` and `HAND_MADE`."""
    verified: dict[str, Any]
    """The answer to `GET /v1/audit/verify`."""
    events: list[dict[str, Any]]
    """Newest first, without those that the purge removed."""
    lists: dict[str, list[dict[str, Any]]]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Left:
        return cls(**json.loads(path.read_text()))


def install(stack: Stack, source: Path) -> Left:
    """Run the version in `source` for some weeks, by the clock; its control API runs at the end."""
    of_version(stack, source, service="control")
    of_version(stack, source, service="sidecar")
    if stack.database_url:
        control_command(stack, "migrate")
    with days_ago(stack, _FORTY):
        prepare(stack)
        keys = _manage(stack)
        _decide(stack, keys)
    with days_ago(stack, _TWENTY):
        _decide(stack, keys)
        _change(stack)
    stack.start_control()
    _purge(stack)
    stack.sidecar.start()
    decide_beside(stack)
    return left(stack, keys)


def left(stack: Stack, keys: dict[str, str]) -> Left:
    """What the running version answers now."""
    first = json.loads((stack.directory / "data" / "first-start.json").read_text())
    return Left(
        stack.admin_key,
        first["superadmin_key"],
        keys,
        stack.verify(),
        list(stack.events()),
        {name: stack.admin("GET", f"/v1/{name}") for name in LISTS},
    )


def _manage(stack: Stack) -> dict[str, str]:
    """Returns the keys by name."""
    new_agent(stack, OTHER_AGENT)
    stack.admin("POST", "/v1/agents", {"agent_id": "agt_new", "agent_role": stack.role})
    stack.admin("POST", "/v1/policies", _policy(stack))
    rule = {"name": "denials", "rule_type": "high_deny_rate", "threshold": 50}
    stack.admin("POST", "/v1/alerts/rules", rule)
    named = {name: new_key(stack, name) for name in ("read", "admin")}
    named[HAND_MADE] = new_key(stack, "sidecar", HAND_MADE)
    bound = new_key(stack, "evaluate", "bound")
    [listed] = [each for each in stack.admin("GET", "/v1/keys") if each["name"] == "bound"]
    binding = {"bound_agent_id": stack.agent_id, "permitted_roles": [stack.role]}
    stack.admin("PATCH", f"/v1/keys/{listed['key_id']}/binding", binding)
    return {**named, "bound": bound, "sidecar": stack.sidecar_key, "evaluate": stack.agent_key}


def _policy(stack: Stack, **changed: Any) -> dict[str, Any]:
    return {
        "name": ONLY_FOR,
        "agent_role": stack.role,
        "industry": "demo",
        "process_group": "exports",
        "allowed_sources": ["handbook", "exports"],
        "denied_sources": ["contracts"],
        "permitted_agent_ids": [stack.agent_id],
        "max_sensitivity": "high",
        **changed,
    }


def _change(stack: Stack) -> None:
    """Replace the documents that decisions have cited so far."""
    [policy] = [each for each in stack.admin("GET", "/v1/policies") if each["name"] == ONLY_FOR]
    changed = _policy(stack, allowed_sources=["handbook", "exports", "reports"])
    stack.admin("PUT", f"/v1/policies/{policy['policy_id']}", changed)


def _decide(stack: Stack, keys: dict[str, str]) -> None:
    """Decisions of the control API itself, with and without a session, a query and a lineage."""
    for asked in ({}, {"source_id": "payroll"}, {"session_id": "s-old"}):
        _evaluated(stack, keys["evaluate"], **asked)
    answer = _evaluated(stack, keys["evaluate"], query_text="who?")
    action = {"event_id": answer["event_id"], "action_type": "summary_sent", "detail": {"pages": 2}}
    status, told = call(
        stack.control.port, "POST", "/v1/audit/lineage", action, key=keys["evaluate"]
    )
    assert status < 300, told


def _evaluated(stack: Stack, key: str, **asked: Any) -> Any:
    body = stack.ask(**asked)
    status, answer = call(stack.control.port, "POST", "/v1/context/evaluate", body, key=key)
    assert status == 200, answer
    return answer


def decide_beside(stack: Stack) -> None:
    """Decisions of the sidecar, and their records in the log."""
    stack.evaluate(session_id="s-1")
    _, denied = stack.evaluate(source_id="payroll", query_text="mail ann@example.com")
    stack.wait_shipped(denied["event_id"])


def _purge(stack: Stack) -> None:
    """Remove what is older than thirty days, and keep the rest for good."""
    stack.admin("PUT", "/v1/settings/retention", {"retention_days": 30})
    control_command(stack, "purge")
    for_good = {"retention_days": 0, "session_retention_days": 0}
    stack.admin("PUT", "/v1/settings/retention", for_good)
    assert stack.verify()["first_seq"] > 0
