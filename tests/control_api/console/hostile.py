"""A tenant in which every field that agents, users and policy authors control holds a payload.

Made once per run and copied for each module that needs it. It holds some payloads of each class;
with `--deep`, all. Knows no page.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.control_api.console.payloads import NAMES, PAYLOADS, some_of_each_class
from tests.support.control_api import ControlApi, running_control_api
from tests.support.run_servers import SERVERS
from tests.support.waiting import until

_IDENTIFIERS = frozenset(NAMES)
_SETTINGS = {"SLUICE_CHECKPOINT_SECONDS": "1"}
_RULES, _TENANTS, _GUARDRAILS = 200, 30, 195


@dataclass
class HostileWorld:
    """A running API, and ids that the service drew for objects with a payload as a name."""

    api: ControlApi
    payloads: list[str]
    policies: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    candidate: str = "hostile"
    sessions: list[str] = field(default_factory=list)
    guardrails: list[str] = field(default_factory=list)
    source_patterns: list[str] = field(default_factory=list)
    impact: str = ""
    refused: list[str] = field(default_factory=list)
    """Calls that the API refused, each with its answer."""

    @property
    def names(self) -> list[str]:
        """The payloads that an identifier may be."""
        return [each for each in self.payloads if each in _IDENTIFIERS]

    @property
    def guarded(self) -> list[str]:
        """Names of guardrails. With a wildcard one could be about what a policy allows."""
        return [each for each in self.names if not {*"*?"} & {*each}][:_GUARDRAILS]

    def made(self, path: str, body: dict[str, Any], member: str) -> str | None:
        """The member of the answer; None if the API refuses this payload, as some rules do."""
        answer = self.api.call("POST", path, body)
        if answer.status < 300:
            value: str = answer.body[member]
            return value
        assert answer.status in (409, 422), (body, answer.raw)
        self.refused.append(f"{path} {body}: {answer.raw!r}")
        return None


@contextmanager
def hostile_world(directory: Path, config: pytest.Config) -> Iterator[HostileWorld]:
    """With all payloads of this run in place, in an empty directory."""
    deep = config.getoption("--deep", default=False)
    payloads = PAYLOADS if deep else some_of_each_class()
    made = config.stash[SERVERS][0] / "hostile-world"
    ids = made.with_suffix(".json")
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ids.exists():
            ids.write_text(json.dumps(_make(made, payloads)))
    shutil.copytree(made, directory, dirs_exist_ok=True)
    with running_control_api(directory, **_SETTINGS) as api:
        yield HostileWorld(api, **json.loads(ids.read_text()))


def _make(directory: Path, payloads: Sequence[str]) -> dict[str, Any]:
    """Fill the directory, and return the fields of the world but for its API."""
    directory.mkdir()
    with running_control_api(directory, **_SETTINGS) as api:
        world = HostileWorld(api, list(payloads))
        for each in world.names:
            _speak(world, each)
        for number, each in enumerate(payloads):
            _explain(world, each, number)
        _try(world)
        for each in world.guarded:
            _guard(world, each)
            _state(world, each)
        _decide(world)
        _measure(world)
    return {name: value for name, value in vars(world).items() if name != "api"}


def _speak(world: HostileWorld, text: str) -> None:
    """Everything whose name is the payload."""
    agent = {"agent_id": text, "agent_role": text, "display_name": text, "description": text}
    world.made("/v1/agents", {**agent, "owner": text, "framework": text}, "agent_id")
    policy = {
        "name": text, "agent_role": text, "allowed_sources": [text], "denied_sources": [],
        "max_sensitivity": "low", "denied_tasks": [text], "permitted_agent_ids": [text],
        "industry": text, "process_group": text,
    }  # fmt: skip
    made = world.made("/v1/policies", policy, "policy_id")
    world.policies += [made] if made else []
    made = world.made("/v1/keys", {"name": text, "scope": "evaluate"}, "key_id")
    if made:
        world.keys.append(made)
        binding = {"bound_agent_id": text, "permitted_roles": [text]}
        world.api.call("PATCH", f"/v1/keys/{made}/binding", binding)
    if len(world.rules) < _RULES:
        rule = {"name": text, "rule_type": "denial_spike", "threshold": 1}
        made = world.made("/v1/alerts/rules", rule, "rule_id")
        world.rules += [made] if made else []
    report = {
        "sidecar_id": text, "run_id": text, "version": text, "agent_id": text, "agent_role": text,
        "epoch": text, "revision": 1, "spool_depth": 0, "refusing": text, "workload": text,
        "enrolled_until": text, "forked": text,
    }  # fmt: skip
    world.made("/v1/sidecars/report", report, "now")


def _guard(world: HostileWorld, text: str) -> None:
    """A guardrail of that name, about a source that no policy names."""
    named = [text]
    never = {"roles": named, "agents": named, "tasks": named, "sources": [f"{text[:100]}~"]}
    made = world.made("/v1/guardrails", {"name": text, "never": never}, "name")
    world.guardrails += [made] if made else []


def _state(world: HostileWorld, text: str) -> None:
    """A level of the sources with that name, which raises no request's."""
    path = f"/v1/sources/{quote(text, safe='')}"
    if world.api.call("PUT", path, {"sensitivity_level": "low"}).status == 200:
        world.source_patterns.append(text)


def _measure(world: HostileWorld) -> None:
    """What the candidate would have changed of all these decisions."""
    body = {"policies": _allowing(world)}
    world.impact = world.api.admin("POST", "/v1/policies/impact", body)["impact_id"]
    path = f"/v1/policies/impact/{world.impact}"
    until("the run's end", lambda: world.api.admin("GET", path)["state"] == "done")


def _allowing(world: HostileWorld) -> list[dict[str, Any]]:
    return [
        {
            "name": text, "agent_role": text, "allowed_sources": [text], "denied_sources": [],
            "max_sensitivity": "low",
        }
        for text in world.names
    ]  # fmt: skip


def _try(world: HostileWorld) -> None:
    """A candidate that allows what is denied, so that each payload is in what it changes."""
    path = f"/v1/policies/candidates/{world.candidate}"
    world.api.admin("PUT", path, {"policies": _allowing(world)})
    items = [
        {"agent_role": text, "source_id": text, "user_id": "u-1", "sensitivity_level": "low"}
        for text in world.names
    ]
    for begin in range(0, len(items), 50):
        part = {"items": items[begin : begin + 50], "semantics": "all"}
        world.api.admin("POST", "/v1/context/evaluate/batch", part)


def _explain(world: HostileWorld, text: str, number: int) -> None:
    """Everything with the payload as its reason."""
    name = world.names[number % len(world.names)]
    held = {"object_type": "session", "object_id": name, "reason": text}
    world.made("/v1/audit/holds", held, "hold_id")
    if number < _TENANTS:
        made = world.made("/v1/admin/tenants", {"name": text}, "tenant_id")
        world.tenants += [made] if made else []
    agent_id = quote(name, safe="")
    # Half of them wait for approval; the others may begin a session.
    for status in ("pending_approval", "approved")[: 1 + number % 2]:
        body = {"status": status, "reason": text}
        world.api.call("PATCH", f"/v1/agents/{agent_id}/status", body)


def _decide(world: HostileWorld) -> None:
    """One decision with each payload in every field."""
    items = [
        {
            "agent_role": text, "agent_id": text, "user_id": text, "source_id": text,
            "session_id": text, "task_type": text, "query": world.payloads[number],
            "sensitivity_level": "low",
        }
        for number, text in enumerate(world.names)
    ]  # fmt: skip
    for item in items[1::2]:
        del item["task_type"]  # which is denied; these begin a session
    # And some of agents that are not registered.
    items += [{**each, "agent_id": f"{each['agent_id'][:100]}~"} for each in items[::10]]
    for begin in range(0, len(items), 50):
        asked = items[begin : begin + 50]
        part = {"items": asked, "semantics": "all"}
        results = world.api.admin("POST", "/v1/context/evaluate/batch", part)["results"]
        for item, each in zip(asked, results, strict=True):
            world.events.append(each["event_id"])
            if each["decision"] == "ALLOW":
                world.sessions.append(item["session_id"])
    assert len(world.sessions) > len(world.names) // 3
    path = f"/v1/audit/proof/{world.events[-1]}"
    until("a checkpoint", lambda: world.api.call("GET", path).status == 200)
