"""Denials that a call escapes by naming no agent: a policy with `permitted_agent_ids` doesn't apply
to such a call, and another policy of the role may allow what it denies. `require_agent_id` closes
this, for it refuses calls without an agent. Knows one role's policies, nothing of files."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from policies.analysis.overlap import overlaps_with
from policies.definitions.model import Policy
from policies.definitions.wildcard import is_pattern


class Escape(NamedTuple):
    """`entry` of the policy's list `key` denies nothing to a call without an agent, and `by` allows
    some of it."""

    policy: Policy
    key: str
    entry: str
    by: Policy


def escapes(policies: Sequence[Policy]) -> Iterator[Escape]:
    """Every denial of a role's policies that a call without an agent escapes."""
    always = [each for each in policies if not each.permitted_agent_ids]
    for policy in policies:
        if not policy.permitted_agent_ids:
            continue
        for entry in policy.denied_sources:
            # An explicit denial by any policy that applies overrides every allow.
            if any(_covers(entry, each.denied_sources) for each in always):
                continue
            overlaps = overlaps_with([entry])
            if by := next((e for e in always if any(map(overlaps, e.allowed_sources))), None):
                yield Escape(policy, "denied_sources", entry, by)
        for task in policy.denied_tasks:
            if any(task in each.denied_tasks for each in always):
                continue
            if by := next((e for e in always if _allows_task(e, task)), None):
                yield Escape(policy, "denied_tasks", task, by)


def _allows_task(policy: Policy, task: str) -> bool:
    lets = not policy.allowed_tasks or task in policy.allowed_tasks
    return bool(policy.allowed_sources) and lets


def _covers(entry: str, denied: Sequence[str]) -> bool:
    """Whether one of `denied` matches all that `entry` matches, as far as a look tells."""
    return any(
        each == entry
        or (each.endswith("*") and not is_pattern(each[:-1]) and entry.startswith(each[:-1]))
        for each in denied
    )
