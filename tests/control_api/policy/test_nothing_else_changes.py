"""A candidate changes no answer, no count of decisions and no alert: two services get the same
requests, one of them with a candidate that decides nearly all of them otherwise."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.control_api.policy.test_candidates import ROUTE
from tests.support.control_api import ControlApi, running_control_api
from tests.support.properties import chance, few
from tests.support.waiting import until

SOURCES = ("handbook", "contracts", "payroll", "rest://files/a", "unknown")
LEVELS = ("low", "medium", "high", "critical")
RULES = {"denial_spike": 3, "high_deny_rate": 20, "isolation_violation": 1, "new_source_access": 2}
OTHERWISE = {
    "name": "support-otherwise",
    "agent_role": "support",
    "allowed_sources": ["payroll", "unknown"],
    "denied_sources": ["handbook"],
    "max_sensitivity": "critical",
}


def prepared(api: ControlApi) -> None:
    for agent in ("a1", "a2"):
        api.approved(agent)
    for name, threshold in RULES.items():
        body = {"name": name, "rule_type": name, "threshold": threshold}
        api.admin("POST", "/v1/alerts/rules", body)


def told(api: ControlApi, draw: random.Random) -> dict[str, Any]:
    """What a caller sees of one random request, but for the id of its event."""
    agent = draw.choice(("a1", "a2", None))
    answer = api.evaluate(
        source_id=draw.choice(SOURCES),
        sensitivity_level=draw.choice(LEVELS),
        agent_role=draw.choice(("support", "support", "stranger")),
        agent_id=agent,
        session_id=draw.choice(("s1", "s2", None)),
    )
    return {name: value for name, value in answer.items() if name != "event_id"}


def decisions(api: ControlApi) -> list[str]:
    lines = api.call("GET", "/metrics").raw.decode().splitlines()
    return [line for line in lines if line.startswith("sluice_decisions_total")]


def fired(api: ControlApi) -> set[str]:
    return {each["rule_type"] for each in api.admin("GET", "/v1/alerts/fired")}


def test_a_candidate_changes_no_answer_metric_statistic_or_alert(tmp_path: Path) -> None:
    with (
        running_control_api(tmp_path / "plain") as plain,
        running_control_api(tmp_path / "tried") as tried,
    ):
        for api in (plain, tried):
            prepared(api)
        tried.admin("PUT", f"{ROUTE}/otherwise", {"policies": [OTHERWISE]})
        one, other = chance("answers"), chance("answers")
        for _ in range(few(1000)):
            assert told(plain, one) == told(tried, other)
        assert decisions(plain) == decisions(tried) != []
        stats = [api.admin("GET", "/v1/audit/stats") for api in (plain, tried)]
        assert stats[0] == stats[1]
        until("the same alerts fire", lambda: fired(plain) == fired(tried) == RULES.keys())
        shown = tried.admin("GET", f"{ROUTE}/otherwise")
        assert shown["decided"] == stats[1]["total"]
        assert shown["newly_allowed"] > 0
        assert shown["newly_denied"] > 0
        for api in (plain, tried):
            api.verified()
