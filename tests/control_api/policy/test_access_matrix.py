"""`GET /v1/policies/access/matrix`: every cell against the service's own evaluation, and how the
table is chosen and paged."""

from __future__ import annotations

from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

from policies.definitions.model import SENSITIVITIES
from tests.policies.naive import matches
from tests.support.control_api import ControlApi

ROUTE = "/v1/policies/access/matrix"
AGENTS, TASKS = (None, "one", "two"), (None, "t", "u")
NAMES = ("a", "b1", "b2", "bx", "c")


def policy(name: str, role: str, allowed: list[str], level: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "agent_role": role, "allowed_sources": allowed, "denied_sources": [],
        "max_sensitivity": level, **more,
    }  # fmt: skip


POLICIES = (
    policy("readers", "r", ["a", "b*"], "medium", denied_sources=["bx"], denied_tasks=["t"]),
    policy("some", "r", ["*"], "low", permitted_agent_ids=["one*"], allowed_tasks=["t"]),
    policy("others", "s", ["a"], "critical"),
)


def matrix(api: ControlApi, **asked: object) -> dict[str, Any]:
    found: dict[str, Any] = api.admin("GET", f"{ROUTE}?{urlencode(asked)}")
    return found


def add(api: ControlApi, *policies: dict[str, Any]) -> None:
    for each in policies:
        api.admin("POST", "/v1/policies", each)


def decisions(api: ControlApi, role: str) -> dict[tuple[Any, ...], bool]:
    """Whether each request of the small world is allowed, by agent, task, source and level."""
    every = list(product(AGENTS, TASKS, NAMES, SENSITIVITIES))
    bodies = [
        {"agent_role": role, "user_id": "u", "source_id": name, "sensitivity_level": level}
        | ({} if agent is None else {"agent_id": agent})
        | ({} if task is None else {"task_type": task})
        for agent, task, name, level in every
    ]
    found: list[bool] = []
    for at in range(0, len(bodies), 100):
        answer = api.admin("POST", "/v1/context/evaluate/batch", {"items": bodies[at : at + 100]})
        found += [each["decision"] == "ALLOW" for each in answer["results"]]
    return dict(zip(every, found, strict=True))


@pytest.mark.deep(stands_in="test_a_source_chooses_the_columns_that_overlap_it")
def test_every_cell_matches_what_the_service_decides(either: ControlApi) -> None:
    api = either
    add(api, *POLICIES)
    for agent in ("one", "two"):
        api.approved(agent, "r", permitted_roles=["r", "s"])
    found = matrix(api, agent_role="?")
    assert found["sources"] == ["*", "a", "b*", "bx"]
    assert [row["agent_role"] for row in found["roles"]] == ["r", "s"]
    for row in found["roles"]:
        decided = decisions(api, row["agent_role"])
        for column, cell in zip(found["sources"], row["cells"], strict=True):
            some, always = None, None
            for level in SENSITIVITIES:
                its = [
                    allows for (_, _, name, at), allows in decided.items()
                    if at == level and matches(column, name)
                ]  # fmt: skip
                some, always = level if any(its) else some, level if all(its) else always
            assert (cell["level"], cell["always"]) == (some, always), (row, column)
            assert bool(cell["depends_on"]) == (some != always)
    of_r = dict(zip(found["sources"], found["roles"][0]["cells"], strict=True))
    assert of_r["a"] == {"level": "medium", "always": None, "depends_on": ["tasks"]}
    assert of_r["b*"]["depends_on"] == ["tasks", "sources"]
    assert of_r["bx"] == {"level": None, "always": None, "depends_on": []}


@pytest.mark.deep(stands_in="test_a_source_chooses_the_columns_that_overlap_it")
def test_roles_and_sources_are_paged(fresh: ControlApi) -> None:
    add(fresh, *(policy(f"p{at}", f"role{at}", [f"s{at}", "z*"], "low") for at in range(5)))
    first = fresh.call("GET", f"{ROUTE}?agent_role=role*&limit=2&sources=2")
    assert [row["agent_role"] for row in first.body["roles"]] == ["role0", "role1"]
    assert (first.body["sources"], first.body["next_source"]) == (["s0", "s1"], "s1")
    more = matrix(fresh, agent_role="role*", limit=2, sources=2, source_after="s1")
    assert (more["sources"], more["next_source"]) == (["z*"], None)
    roles: list[str] = []
    path: str | None = f"{ROUTE}?agent_role=role*&limit=2"
    while path is not None:
        page = fresh.call("GET", path)
        roles += [row["agent_role"] for row in page.body["roles"]]
        link = page.headers.get("Link")
        path = None if link is None else link[link.index("<") + 1 : link.index(">")]
    assert roles == [f"role{at}" for at in range(5)]


def test_a_source_chooses_the_columns_that_overlap_it(fresh: ControlApi) -> None:
    add(fresh, *POLICIES)
    found = matrix(fresh, agent_role="r", source_id="b1")
    assert found["sources"] == ["b1", "*", "b*"]
    assert found["roles"][0]["cells"][0]["level"] == "medium"
    assert matrix(fresh, agent_role="r", source_id="c*")["sources"] == ["c*", "*"]
    assert matrix(fresh, agent_role="unknown") == {"sources": [], "next_source": None, "roles": []}
    whole = matrix(fresh, agent_role="r")
    assert whole["sources"] == ["*", "a", "b*", "bx"]
    of_r = dict(zip(whole["sources"], whole["roles"][0]["cells"], strict=True))
    assert of_r["a"] == {"level": "medium", "always": None, "depends_on": ["tasks"]}
    assert of_r["b*"]["depends_on"] == ["tasks", "sources"]
    assert of_r["bx"] == {"level": None, "always": None, "depends_on": []}
    page = fresh.call("GET", f"{ROUTE}?limit=1&sources=2&agent_role=?")
    assert [row["agent_role"] for row in page.body["roles"]] == ["r"]
    assert (page.body["sources"], page.body["next_source"]) == (["*", "a"], "a")
    link = page.headers["Link"]
    more = fresh.call("GET", link[link.index("<") + 1 : link.index(">")])
    assert [row["agent_role"] for row in more.body["roles"]] == ["s"]
    after = matrix(fresh, agent_role="r", sources=2, source_after="a")
    assert (after["sources"], after["next_source"]) == (["b*", "bx"], None)


@pytest.mark.deep(
    stands_in="tests/control_api/policy/analyses/test_here.py::test_a_large_table_is_made_in_another_process_with_the_same_cells"
)
def test_a_table_of_a_large_policy_has_the_right_cells(fresh: ControlApi) -> None:
    many = [f"source-{number:0100}" for number in range(700)]  # more than 64 KiB
    add(fresh, policy("large", "large", many, "high"), *POLICIES)
    found = matrix(fresh, sources=2, source_id="source-*7")
    assert found["sources"] == ["source-*7", "*"]
    assert {row["agent_role"]: row["cells"][0]["level"] for row in found["roles"]}[
        "large"
    ] == "high"


@pytest.mark.deep(
    stands_in="tests/control_api/policy/analyses/test_here.py::test_a_role_that_can_t_be_analysed_has_a_fault_beside_the_others"
)
def test_a_role_that_can_t_be_analysed_has_a_fault_and_the_others_have_cells(
    fresh: ControlApi,
) -> None:
    words = [f"*{first}{second}?*x" for first, second in product("abcdefgh", repeat=2)]
    add(fresh, *(policy(f"p{at}", "wild", [each], "low") for at, each in enumerate(words)))
    add(fresh, *POLICIES)
    rows = {row["agent_role"]: row for row in matrix(fresh)["roles"]}
    assert rows["wild"]["cells"] is None
    assert "overlap in too many ways" in rows["wild"]["fault"]
    assert rows["s"]["fault"] is None


def test_the_request_is_validated(api: ControlApi) -> None:
    for query in ("limit=51", "sources=0", "agent_role=", "level=low"):
        assert api.call("GET", f"{ROUTE}?{query}").status == 422
