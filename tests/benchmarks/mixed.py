"""A tenant like a real one, and many different requests to it: 1,000 policies of 100 roles, an
agent for each role, sessions, tasks; and how they are sent. Knows no figure.

A source whose name begins with `vault` is denied by every policy, and every answer says which
source it is about. So any answer can be checked by its text alone, whichever request it belongs to.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import servers
from tests.benchmarks.measure import EVALUATE, LOAD, request
from tests.support.stack import ROOT, Stack

AUTHZEN = "/access/v1/evaluation"
ROLES = 100
POLICIES_EACH = 10
SESSIONS_EACH = 5
REQUESTS = 4000
COLLECTIONS = 50

_LEVELS = ("low", "medium", "high")
_TASKS = ("support_question", "monthly_report", "summary", None)

Rules = tuple[tuple[str, str], ...]
"""An answer whose body holds the first text must hold the second; the first rule that applies is
the only one."""


@dataclass(frozen=True)
class Mixed:
    """Requests, which are sent in turn, and what their answers must hold."""

    requests: list[bytes]
    rules: Rules

    def file(self) -> bytes:
        """The rules, then the requests, as the load generators read them."""
        rules = [part.encode() for rule in self.rules for part in rule]
        return b"\0".join([b"%d" % len(self.rules), *rules, *self.requests])


@dataclass(frozen=True)
class Question:
    """One retrieval, in no product's form."""

    role: int
    policy: int
    source: str
    level: str
    session: str
    task: str | None
    user: str


def policies() -> str:
    """The policy file."""
    made: list[dict[str, object]] = [
        {
            "name": f"policy-{role}-{policy}",
            "agent_role": f"role-{role}",
            "allowed_sources": [f"records-{role}-{policy}", f"rest://files-{role}-{policy}/*"],
            "denied_sources": ["vault-*"],
            "max_sensitivity": "high",
            "denied_tasks": ["bulk_export"],
        }
        for role in range(ROLES)
        for policy in range(POLICIES_EACH)
    ]
    searches = {
        "name": "searches",
        "agent_role": "support",
        "allowed_sources": ["qdrant://vectors/*"],
    }
    made.append({**searches, "denied_sources": [], "max_sensitivity": "high"})
    return yaml.safe_dump({"policies": made})


def questions() -> list[Question]:
    """The same in every run; one in ten is denied."""
    chance = random.Random(15)
    made = []
    for number in range(REQUESTS):
        role, policy = chance.randrange(ROLES), chance.randrange(POLICIES_EACH)
        sources = (f"records-{role}-{policy}", f"rest://files-{role}-{policy}/{number}")
        source = f"vault-{number}" if number % 10 == 9 else chance.choice(sources)
        session = f"session-{role}-{chance.randrange(SESSIONS_EACH)}"
        user = f"user-{chance.randrange(1000)}"
        level, task = chance.choice(_LEVELS), chance.choice(_TASKS)
        made.append(Question(role, policy, source, level, session, task, user))
    return made


def register(stack: Stack) -> None:
    """Register and approve the agent of each role."""
    for role in range(ROLES):
        agent = f"agent-{role}"
        stack.admin("POST", "/v1/agents", {"agent_id": agent, "agent_role": f"role-{role}"})
        for status in ("pending_approval", "approved"):
            stack.admin("PATCH", f"/v1/agents/{agent}/status", {"status": status})


def evaluations(key: str) -> Mixed:
    """Evaluations as Sluice takes them."""
    made = []
    for each in questions():
        body = {
            "agent_role": f"role-{each.role}",
            "agent_id": f"agent-{each.role}",
            "user_id": each.user,
            "source_id": each.source,
            "sensitivity_level": each.level,
            "session_id": each.session,
        }
        if each.task is not None:
            body["task_type"] = each.task
        made.append(request("POST", EVALUATE, body, key))
    return Mixed(made, (("vault-", '"decision":"DENY"'), ("", '"decision":"ALLOW"')))


def authzen_evaluations(key: str) -> Mixed:
    """The same evaluations as AuthZEN has them."""
    made = []
    for each in questions():
        agent = {
            "type": "agent",
            "id": f"agent-{each.role}",
            "properties": {"role": f"role-{each.role}"},
        }
        level = {"sensitivity_level": each.level}
        context = {"user_id": each.user, "session_id": each.session}
        if each.task is not None:
            context["task_type"] = each.task
        body = {
            "subject": agent,
            "action": {"name": "read"},
            "resource": {"type": "source", "id": each.source, "properties": level},
            "context": context,
        }
        made.append(request("POST", AUTHZEN, body, key))
    return Mixed(made, (("vault-", '"decision":false'), ("", '"decision":true')))


def unchecked(mixed: Mixed) -> Mixed:
    """The same requests, to a floor that answers all of them alike."""
    return Mixed(mixed.requests, (("", "{"),))


def searches() -> Mixed:
    """Searches as Qdrant takes them, each with its own vector."""
    chance = random.Random(16)
    made = []
    for number in range(REQUESTS // 4):
        vector = [round(chance.uniform(-1, 1), 4) for _ in range(16)]
        body = {"vector": vector, "limit": 1 + number % 10, "with_payload": True}
        path = f"/collections/collection-{number % COLLECTIONS}/points/search"
        made.append(request("POST", path, body))
    return Mixed(made, (("", '"status":"ok"'),))


def cerbos_policies() -> dict[str, str]:
    """The same policies for Cerbos, by file name: a kind of resource stands for one policy's
    sources, as Cerbos finds a policy by the kind."""
    made = {}
    for role in range(ROLES):
        for policy in range(POLICIES_EACH):
            kind = f"records_{role}_{policy}"
            expression = (
                'R.attr.level <= 2 && !R.id.startsWith("vault-") && P.attr.task != "bulk_export"'
            )
            rule = {
                "actions": ["read"],
                "effect": "EFFECT_ALLOW",
                "roles": [f"role-{role}"],
                "condition": {"match": {"expr": expression}},
            }
            made[f"{kind}.yaml"] = yaml.safe_dump(
                {
                    "apiVersion": "api.cerbos.dev/v1",
                    "resourcePolicy": {"resource": kind, "version": "default", "rules": [rule]},
                }
            )
    return made


def cerbos_checks() -> Mixed:
    """The same requests as Cerbos takes them."""
    made = []
    for each in questions():
        principal = {
            "id": f"agent-{each.role}",
            "roles": [f"role-{each.role}"],
            "attr": {"task": each.task or "", "session": each.session, "user": each.user},
        }
        resource = {
            "kind": f"records_{each.role}_{each.policy}",
            "id": each.source,
            "attr": {"level": _LEVELS.index(each.level)},
        }
        body = {"principal": principal, "resources": [{"actions": ["read"], "resource": resource}]}
        made.append(request("POST", "/api/check/resources", body))
    return Mixed(made, (("vault-", "EFFECT_DENY"), ("", "EFFECT_ALLOW")))


def send(mixed: Mixed, port: int, connections: int, seconds: int) -> dict[str, Any]:
    """One run of the load: `wrk`, or our own generator where it is missing. With one connection
    always our own: wrk adds to its latencies what it believes to have missed during long ones."""
    wrk = servers.of_system("wrk") if connections > 1 else None
    with tempfile.NamedTemporaryFile() as file:
        file.write(mixed.file())
        file.flush()
        if wrk is not None:
            script = Path(__file__).with_name("mixed.lua")
            command = [str(wrk), "-t1", f"-c{connections}", f"-d{seconds}s"]
            command += ["--timeout", "20s", "-s", str(script)]
            command += [f"http://127.0.0.1:{port}", "--", file.name]
        else:
            command = [sys.executable, "-m", "tests.benchmarks.load", "127.0.0.1", str(port)]
            command += [str(connections), str(seconds)]
        file.seek(0)
        done = subprocess.run(
            command,
            stdin=file,
            capture_output=True,
            check=False,
            cwd=ROOT,
            preexec_fn=lambda: os.sched_setaffinity(0, LOAD),
        )
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line[:1] == "{"]
    if done.returncode or not lines:
        raise SystemExit(f"the load failed: {done.stdout.decode()} {done.stderr.decode()}")
    found: dict[str, Any] = json.loads(lines[0])
    if found["wrong"] or found["lost"] or not found["answers"]:
        raise SystemExit(f"wrong answers or lost connections: {done.stdout.decode()[-4000:]}")
    return {**found, "rate": found["answers"] / found["seconds"]}
