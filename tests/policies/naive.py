"""A second implementation of `CONTRACT.md`, The ten checks and what follows them, word for word and
without regard to speed."""

import re

from policies.checks.finding import Facts
from policies.definitions.model import SENSITIVITIES, Policy
from policies.retrieval import Retrieval

Answer = tuple[str, str, str | None]


def matches(pattern: str, name: str) -> bool:
    """Matches `*` to any run and `?` to one character, by dynamic programming over all prefixes."""
    row = [True] + [False] * len(name)
    for p in pattern:
        if p == "*":
            below = [row[0]]
            for at in range(len(name)):
                below.append(row[at + 1] or below[at])
        else:
            below = [False] + [row[at] and p in ("?", name[at]) for at in range(len(name))]
        row = below
    return row[-1]


def listed(entries: tuple[str, ...], name: str | None) -> bool:
    return name is not None and any(matches(entry, name) for entry in entries)


def identity(call: Retrieval, facts: Facts) -> tuple[str, str] | None:
    """The first of checks 1 to 6 that fails, and the `policy_name` of its denial."""
    agent, key, session = facts.agent, facts.key, facts.session
    if facts.settings.require_agent_id and call.agent_id is None:
        return "agent_id_required", "agent_id_required"
    if call.agent_id is not None and agent is None:
        return "agent_not_registered", "registry"
    if agent is not None and agent.status != "approved":
        return "agent_not_approved", "registry"
    if agent is not None and call.agent_role not in agent.permitted_roles:
        return "role_not_permitted", "role_restriction"
    if key.permitted_roles and call.agent_role not in key.permitted_roles:
        return "key_role_restriction", "role_restriction"
    if key.bound_agent_id is not None and key.bound_agent_id != call.agent_id:
        return "key_agent_binding", "binding"
    if agent is not None and agent.bound_key_id not in (None, key.key_id):
        return "key_agent_binding", "binding"
    if session is not None:
        if session.state != "active":
            return f"session_{session.state}", "session"
        if (session.agent_role, session.agent_id) != (call.agent_role, call.agent_id):
            return "session_agent_mismatch", "session"
    return None if facts.role is not None else ("default_deny", "policy_exists")


def failing(call: Retrieval, policy: Policy) -> int | None:
    """The number of the first of checks 7 to 10 that fails."""
    if policy.permitted_agent_ids and not listed(policy.permitted_agent_ids, call.agent_id):
        return 7
    task = call.task_type
    if task is not None and task in policy.denied_tasks:
        return 8
    if task is not None and policy.allowed_tasks and task not in policy.allowed_tasks:
        return 8
    source = call.source_id
    if listed(policy.denied_sources, source) or not listed(policy.allowed_sources, source):
        return 9
    level = SENSITIVITIES.index(call.sensitivity_level)
    return 10 if level > SENSITIVITIES.index(policy.max_sensitivity) else None


NUMBERED = {7: "agent_permitted", 8: "task", 9: "source", 10: "sensitivity"}


def answer(call: Retrieval, facts: Facts, policies: list[Policy]) -> Answer:
    """Decision, policy name and check."""
    if facts.settings.frozen_at is not None:
        return "DENY", "tenant_frozen", None
    denied = identity(call, facts)
    if denied is not None:
        return "DENY", *denied
    ordered = sorted(policies, key=lambda policy: policy.name)
    applying = [policy for policy in ordered if failing(call, policy) != 7]
    explicit = [policy for policy in applying if denies(call, policy)]
    if not explicit:
        for policy in applying:
            if failing(call, policy) is None:
                return "ALLOW", policy.name, None
    named = closest(call, explicit or applying or ordered)
    return "DENY", named.name, NUMBERED[failing(call, named) or 0]


def denies(call: Retrieval, policy: Policy) -> bool:
    """Whether the policy denies explicitly."""
    in_tasks = call.task_type is not None and call.task_type in policy.denied_tasks
    return in_tasks or listed(policy.denied_sources, call.source_id)


def common_beginning(one: str, other: str) -> int:
    at = 0
    while one[at : at + 1] == other[at : at + 1] != "":
        at += 1
    return at


def closest(call: Retrieval, policies: list[Policy]) -> Policy:
    """The policy to name: passed the most checks; then its list matches the source; then one of its
    entries shares the longest literal prefix with the source; then the first by name."""

    def place(policy: Policy) -> tuple[int, bool, int]:
        denied = listed(policy.denied_sources, call.source_id)
        entries = policy.denied_sources if denied else policy.allowed_sources
        common = [
            common_beginning(re.split(r"[*?]", entry)[0], call.source_id) for entry in entries
        ]
        got = failing(call, policy) or 0
        return got, listed(entries, call.source_id), max(common, default=0)

    best = max(map(place, policies))
    return next(policy for policy in policies if place(policy) == best)
