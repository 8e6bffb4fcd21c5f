"""No sequence of accepted writes reaches a state that breaks a guardrail: random writes of every
kind, and after each that is accepted, every request over small alphabets decided by the core."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from policies.definitions.guardrail import Guardrail, Kind
from policies.definitions.model import Policy
from tests.control_api.policy.replicas import at_once, two
from tests.policies.analysis import small
from tests.policies.analysis.test_guardrails import described, guardrail
from tests.runner import tiers
from tests.support.control_api import Answer, ControlApi, running_control_api
from tests.support.postgres import serving

SOURCES = tuple(name for name in small.SOURCES if len(name) < 3)
ASKED = [each for role in small.ROLES for each in small.requests(role, SOURCES)]
REFUSED = (404, 409, 422)


class Writer:
    """Makes random writes. Files are those of the given API's directory."""

    def __init__(self, random: Random, files: Path) -> None:
        self._random = random
        self._files = files / "policies" / "default"
        (self._files / "demo").mkdir(parents=True, exist_ok=True)
        self._ids: list[str] = []

    def write(self, api: ControlApi) -> Answer:
        kinds = (self._create, self._replace, self._delete, self._restore, self._reload)
        others = (self._promote, self._rule, self._rule, self._drop_rule)
        return self._random.choice((*kinds, *kinds, *others))(api)

    def _policy(self, prefix: str = "n") -> dict[str, Any]:
        found = small.policy(self._random, self._random.randrange(5)).to_wire()
        members = {
            key: value for key, value in found.items() if key not in ("policy_id", "version")
        }
        return {**members, "name": f"{prefix}{members['name']}"}

    def _guardrail(self) -> Guardrail:
        return guardrail(self._random)._replace(name=f"g{self._random.randrange(4)}")

    def _create(self, api: ControlApi) -> Answer:
        answer = api.call("POST", "/v1/policies", self._policy())
        if answer.status == 201:
            self._ids.append(answer.body["policy_id"])
        return answer

    def _any_id(self) -> str:
        return self._random.choice(self._ids) if self._ids else "pol_none"

    def _replace(self, api: ControlApi) -> Answer:
        return api.call("PUT", f"/v1/policies/{self._any_id()}", self._policy())

    def _delete(self, api: ControlApi) -> Answer:
        return api.call("DELETE", f"/v1/policies/{self._any_id()}")

    def _restore(self, api: ControlApi) -> Answer:
        return api.call("POST", f"/v1/policies/{self._any_id()}/restore")

    def _reload(self, api: ControlApi) -> Answer:
        # JSON is YAML.
        policies = {each["name"]: each for each in (self._policy("f") for _ in range(2))}
        given = {"policies": [_filed(each) for each in policies.values()]}
        (self._files / "demo" / "support.yaml").write_text(json.dumps(given))
        rules = [self._guardrail().to_wire()] if self._random.random() < 0.4 else []
        (self._files / "guardrails.yaml").write_text(json.dumps({"guardrails": rules}))
        answer = api.call("POST", "/v1/policies/reload")
        if answer.status == 200:
            known = api.admin("GET", "/v1/policies")
            self._ids = list(dict.fromkeys([*self._ids, *(each["policy_id"] for each in known)]))
        return answer

    def _promote(self, api: ControlApi) -> Answer:
        given = {each["name"]: each for each in (self._policy("c") for _ in range(3))}
        path = "/v1/policies/candidates/next"
        answer = api.call("PUT", path, {"policies": list(given.values())})
        if answer.status >= 300:
            return answer
        answer = api.call("POST", f"{path}/promote")
        if answer.status == 200:
            known = api.admin("GET", "/v1/policies")
            self._ids = list(dict.fromkeys([*self._ids, *(each["policy_id"] for each in known)]))
        return answer

    def _rule(self, api: ControlApi) -> Answer:
        rule = self._guardrail().to_wire()
        if self._random.random() < 0.5:
            return api.call("POST", "/v1/guardrails", rule)
        return api.call("PUT", f"/v1/guardrails/{rule.pop('name')}", rule)

    def _drop_rule(self, api: ControlApi) -> Answer:
        return api.call("DELETE", f"/v1/guardrails/g{self._random.randrange(4)}")


def _filed(policy: dict[str, Any]) -> dict[str, Any]:
    """Without members that are null: a file leaves them out."""
    return {key: value for key, value in policy.items() if value is not None}


def rules_in_force(api: ControlApi) -> list[Guardrail]:
    found = []
    for each in api.admin("GET", "/v1/guardrails"):
        kind: Kind = "never" if each["always"] is None else "always"
        members = {key: value for key, value in each[kind].items() if value is not None}
        found.append(Guardrail.of(each["name"], kind, members))
    return found


def broken(api: ControlApi) -> list[tuple[str, Any]]:
    """Guardrails in force that a request breaks, by brute force."""
    active = [Policy.from_wire(each) for each in api.admin("GET", "/v1/policies?limit=1000")]
    compiled = small.roles(active)
    rules = rules_in_force(api)
    return [
        (rule.name, each)
        for each in ASKED
        if (about := [rule for rule in rules if described(rule, each)])
        for allowed in [small.allowed(each, compiled)]
        for rule in about
        if allowed != (rule.kind == "always")
    ]


@pytest.mark.parametrize("seed", range(3) if tiers.deep() else [0])
def test_no_sequence_of_accepted_writes_breaks_a_guardrail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    _unwatched(monkeypatch)
    with running_control_api(tmp_path, policies=None) as api:
        writer = Writer(Random(seed), tmp_path)
        refusals = {}
        for _ in range(70):
            answer = writer.write(api)
            assert answer.status < 300 or answer.status in REFUSED, answer.raw
            if answer.status < 300:
                assert broken(api) == []
            elif "counterexample" in answer.body.get("details", ""):
                details = json.loads(answer.body["details"])
                refusals[details["guardrail"]] = details["counterexample"]
        assert broken(api) == []
        assert refusals, "no write was refused: the test tries nothing"
        api.verified()


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_concurrent_writes.py::test_one_of_two_writes_that_together_break_a_guardrail_is_refused"
)
@pytest.mark.parametrize("seed", range(2))
def test_no_writes_at_once_on_two_replicas_break_a_guardrail(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    _unwatched(monkeypatch)
    with two(tmp_path, serving(migrated_url)) as replicas:
        writers = [
            Writer(Random(f"replica {number} {seed}"), api.directory)
            for number, api in enumerate(replicas)
        ]
        refused = 0
        for _ in range(25):
            writes = tuple(partial(Writer.write, writer) for writer in writers)
            answers = at_once(replicas, (writes[0], writes[1]))
            for answer in answers:
                assert answer.status < 300 or answer.status in REFUSED, answer.raw
                refused += answer.status == 409
            assert broken(replicas[0]) == []
        assert refused
        replicas[1].verified()


def _unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read only on request, so that the test knows which write it made."""

    async def never(self: Any) -> None:
        await self._stopping.wait()

    monkeypatch.setattr("control_api.policy.reload.PolicyDirectory.watch", never)
