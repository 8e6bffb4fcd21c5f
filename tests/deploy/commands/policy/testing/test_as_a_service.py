"""The runner decides as a service does: what a real one answered is what a file of tests expects.

Random calls, by every kind of key and agent, on random policies. The service's answers become a
file of tests, and every case of it passes.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from policies.checks.order import NAMES
from policies.definitions.model import SENSITIVITIES
from tests.deploy.commands.policy.testing.trees import run
from tests.policies.analysis.small import SOURCES, TASKS
from tests.policies.analysis.small import policy as small_policy
from tests.support.control_api import ControlApi, running_control_api
from tests.support.properties import few

ROLES = ("r0", "r1", "r2", "r3")
AGENTS = (None, "a", "ab", "x", "draft", "suspended", "bound", "ghost")


def given_by(api: ControlApi) -> tuple[dict[str, Any], dict[str, str]]:
    """Registers agents and keys. Returns them as a file of tests gives them, and the keys' texts
    by their ids."""
    made = [
        api.admin("POST", "/v1/keys", {"name": name, "scope": "evaluate"})
        for name in ("plain", "agent", "role", "agents")
    ]
    plain, to_agent, to_role, of_agent = (key["key_id"] for key in made)
    agents: dict[str, dict[str, Any]] = {
        "a": {"agent_role": "r0"},
        "ab": {"agent_role": "r1"},
        "x": {"agent_role": "r2"},
        "all": {"agent_role": "r0", "permitted_roles": [*ROLES, "none"]},
        "bound": {"agent_role": "r3", "bound_key_id": of_agent},
    }
    for name, fields in agents.items():
        api.admin("POST", "/v1/agents", {"agent_id": name, **fields})
        for status in ("pending_approval", "approved"):
            api.admin("PATCH", f"/v1/agents/{name}/status", {"status": status})
    api.admin("POST", "/v1/agents", {"agent_id": "draft", "agent_role": "r0"})
    agents["draft"] = {"agent_role": "r0", "status": "draft"}
    api.approved("suspended", "r0")
    api.admin("PATCH", "/v1/agents/suspended/status", {"status": "suspended"})
    agents["suspended"] = {"agent_role": "r0", "status": "suspended"}
    agents["ghost"] = {"status": "unregistered"}
    keys: dict[str, dict[str, Any]] = {
        plain: {},
        to_agent: {"bound_agent_id": "a"},
        to_role: {"permitted_roles": ["r1"]},
        of_agent: {},
    }
    for key_id, fields in keys.items():
        api.admin("PATCH", f"/v1/keys/{key_id}/binding", fields)
    return {"agents": agents, "keys": keys}, {key["key_id"]: key["key"] for key in made}


def answered(api: ControlApi, key: str, ask: dict[str, Any]) -> dict[str, str]:
    """The decision of the service, as a case expects it."""
    answer = api.call("POST", "/v1/context/evaluate?explain=true", ask, key=key)
    assert answer.status == 200, answer.raw
    body = answer.body
    found = {name: body[name] for name in ("decision", "policy_name", "reason")}
    failed = [each for each in body["explain"]["checks"] if each["outcome"] == "failed"]
    return found | ({"check": failed[-1]["check"]} if failed else {})


def random_ask(random: Random, number: int) -> dict[str, Any]:
    return {
        "agent_role": random.choice((*ROLES, "none")),
        "user_id": "ann",
        "source_id": random.choice(SOURCES),
        "sensitivity_level": random.choice((*SENSITIVITIES, "low", "low")),
        "task_type": random.choice((*TASKS, None, None)),
        "agent_id": random.choice((*AGENTS, *["all"] * 6)),
        "session_id": random.choice((None, f"s{number}")),
    }


def random_policies(random: Random) -> list[dict[str, Any]]:
    """Two for each role."""
    found = []
    for number in range(2 * len(ROLES)):
        body = small_policy(random, number).to_wire() | {"agent_role": ROLES[number // 2]}
        found.append({k: v for k, v in body.items() if k not in ("policy_id", "version")})
    return found


def test_files_with_a_service_s_own_answers_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(16)
    files: dict[str, dict[str, Any]] = {}
    with running_control_api(
        tmp_path, policies=json.dumps({"policies": random_policies(random)})
    ) as api:
        given, keys = given_by(api)
        plain = next(iter(keys))
        for required in (False, True):
            settings = "/v1/admin/tenants/default/settings"
            api.admin("PATCH", settings, {"require_agent_id": required})
            tests = []
            for number in range(few(1000) // 2):
                ask = random_ask(random, number + 1000 * required)
                key_id = random.choice([*keys, plain, plain, plain])
                expect = answered(api, keys[key_id], ask)
                tests.append({"key": key_id, "ask": ask, "expect": expect})
            tenant = {"require_agent_id": required}
            files[f"{required}_test.yaml"] = {"given": {**given, "tenant": tenant}, "tests": tests}
    for name, file in files.items():
        # JSON is YAML.
        (tmp_path / "policies/default/demo" / name).write_text(json.dumps(file, indent=1))
    code = run(tmp_path / "policies")
    printed = capsys.readouterr()
    assert (code, printed.out) == (0, "")
    every = [test["expect"] for file in files.values() for test in file["tests"]]
    assert printed.err == f"{len(every)} cases, {len(every)} passed, 0 failed\n"
    # A file can't give a session that another call has claimed.
    assert {expect.get("check") for expect in every} == {None, *NAMES} - {"session"}
