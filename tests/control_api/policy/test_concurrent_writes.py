"""Two writes at once on two replicas, each fine alone and not together: one of them is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.control_api.policy.replicas import Write, at_once, two
from tests.support import migrated
from tests.support.control_api import Answer, ControlApi
from tests.support.postgres import serving
from tests.support.waiting import until

ROUNDS = 12
Replicas = tuple[ControlApi, ControlApi]
RULE = {"name": "g", "never": {"sources": ["payroll*"]}}


@pytest.fixture(scope="module")
def replicas(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    from tests.support.run_servers import SERVERS

    with (
        migrated.database(*pytestconfig.stash[SERVERS]) as url,
        two(tmp_path_factory.mktemp("replicas"), serving(url)) as both,
    ):
        yield both


def policy(name: str, allowed: list[str], denied: list[str] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "agent_role": "r",
        "allowed_sources": allowed,
        "denied_sources": denied or [],
        "max_sensitivity": "high",
    }


def asking(method: str, path: str, body: object = None) -> Write:
    return partial(_ask, method, path, body)


def _ask(method: str, path: str, body: object, api: ControlApi) -> Answer:
    return api.call(method, path, body)


def emptied(api: ControlApi) -> None:
    for rule in api.admin("GET", "/v1/guardrails"):
        api.admin("DELETE", f"/v1/guardrails/{rule['name']}")
    for each in api.admin("GET", "/v1/policies"):
        api.admin("DELETE", f"/v1/policies/{each['policy_id']}")


def allow_and_remove_the_denial(api: ControlApi) -> tuple[Write, Write]:
    first = api.admin("POST", "/v1/policies", policy("first", ["a"]))["policy_id"]
    other = api.admin("POST", "/v1/policies", policy("other", ["b"], ["payroll*"]))["policy_id"]
    api.admin("POST", "/v1/guardrails", RULE)
    wider = policy("first", ["a", "payroll"])
    return (
        asking("PUT", f"/v1/policies/{first}", wider),
        asking("DELETE", f"/v1/policies/{other}"),
    )


def delete_the_last_two_that_allow(api: ControlApi) -> tuple[Write, Write]:
    ids = [
        api.admin("POST", "/v1/policies", policy(name, ["handbook"]))["policy_id"]
        for name in ("first", "other")
    ]
    rule = {"name": "g", "always": {"roles": ["r"], "sources": ["handbook"], "levels": ["low"]}}
    api.admin("POST", "/v1/guardrails", rule)
    return asking("DELETE", f"/v1/policies/{ids[0]}"), asking("DELETE", f"/v1/policies/{ids[1]}")


def a_policy_and_the_guardrail_that_forbids_it(_: ControlApi) -> tuple[Write, Write]:
    wide = policy("first", ["payroll-eu"])
    return asking("POST", "/v1/policies", wide), asking("POST", "/v1/guardrails", RULE)


OTHER = pytest.mark.deep(
    stands_in="test_one_of_two_writes_that_together_break_a_guardrail_is_refused"
)


@pytest.mark.parametrize(
    "scene",
    [
        allow_and_remove_the_denial,
        pytest.param(delete_the_last_two_that_allow, marks=OTHER),
        pytest.param(a_policy_and_the_guardrail_that_forbids_it, marks=OTHER),
    ],
)
def test_one_of_two_writes_that_together_break_a_guardrail_is_refused(
    replicas: Replicas, scene: Any
) -> None:
    for number in range(ROUNDS):
        here, there = replicas if number % 2 else replicas[::-1]
        emptied(here)
        writes = scene(here)
        answers = at_once((here, there), writes if number % 4 < 2 else writes[::-1])
        statuses = sorted(answer.status for answer in answers)
        assert statuses[0] in (200, 201), [answer.raw for answer in answers]
        assert statuses[1] == 409, [answer.raw for answer in answers]
        (refused,) = (answer for answer in answers if answer.status == 409)
        details = json.loads(refused.body["details"])
        assert details["guardrail"] == "g"
        # What was refused is not in force: the counterexample is still decided as it must be.
        rules = there.admin("GET", "/v1/guardrails")
        never = [rule for rule in rules if rule["never"]]
        for rule in rules:
            wanted = "DENY" if rule in never else "ALLOW"
            # The other replica hears of the write that was accepted a moment later.
            until(
                f"the counterexample is {wanted}",
                lambda: there.evaluate(**details["counterexample"])["decision"] == wanted,  # noqa: B023
            )
    replicas[0].verified()
