"""Makes recorded decisions again, by other policies than the original ones.

    replay = Replay(policies)
    for entry in entries: replay.decide(entry)      a `decision` entry, decoded

Only checks 6 to 10, which look at policies, are made again. Identity and session (checks 1 to 5)
and a freeze stay as recorded, so a decision that they denied is the same by any policies. A value
that an entry does not hold is never guessed: `Why` lists the cases.

An entry holds in clear all that policies look at: role, agent, task, source and level. So it can be
replayed although its user and query were masked or erased, and although the documents that it cites
are gone. Pure; knows nothing of logs, and verifies nothing.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from policies.checks.order import CALL, NAMES
from policies.definitions.model import RANK, Policy
from policies.evaluate import TENANT_FROZEN, evaluate_admitted
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role

MAX_KNOWN = 50_000
"""The most different requests whose decision is remembered. When it is reached, all are forgotten
at once."""

_BY_POLICIES = frozenset(NAMES[len(CALL) - 1 :])
_BY_IDENTITY = frozenset(NAMES) - _BY_POLICIES
_DECIDING = frozenset({"agent_role", "agent_id", "task_type", "source_id", "sensitivity_level"})


class Why(StrEnum):
    """The reason why a decision can't be made again from its entry alone."""

    no_facts = "no_facts"
    """The decision was made outside of the ten checks: a stale policy set, an unreadable request, a
    key that was not valid, an evaluation that failed."""
    unknown_check = "unknown_check"
    """The decision was a denial by a check that this version does not have."""
    unknown_level = "unknown_level"
    """The request's sensitivity level is not one of the four."""
    masked = "masked"
    """A field that policies look at was masked before it was recorded."""
    unreadable = "unreadable"
    """The entry lacks a member that every decision has, or holds another type of value there."""


class Replayed(NamedTuple):
    """A recorded decision beside the decision that other policies make: `before` and `after` are
    `ALLOW` or `DENY`, each with its `policy_name`."""

    agent_role: str
    source_id: str
    before: str
    policy_name_before: str
    after: str
    policy_name_after: str

    @property
    def same(self) -> bool:
        """True if decision and policy name are the same before and after."""
        return self[2:4] == self[4:6]


class _Recorded(NamedTuple):
    """The parts of a decision's entry on which its replay depends."""

    agent_role: str
    agent_id: str | None
    task_type: str | None
    source_id: str
    level: str
    decision: str
    policy_name: str
    check: str | None
    frozen: bool
    masked: bool


class Replay:
    """Decides recorded requests by `policies`, which are all policies that the tenant would
    have."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        by_role: dict[str, list[Policy]] = {}
        for policy in policies:
            by_role.setdefault(policy.agent_role, []).append(policy)
        self._policies = by_role
        self._roles: dict[str, Role] = {}
        # Most traffic repeats itself: the same few agents read the same sources for the same tasks.
        self._known: dict[_Recorded, Replayed | Why] = {}

    def decide(self, entry: Mapping[str, Any]) -> Replayed | Why:
        """Return the decision of a `decision` entry before and after, or the reason why it can't be
        made again."""
        try:
            recorded = _read(entry)
            if recorded is None:
                return Why.no_facts
            known = self._known.get(recorded)
        # The log also holds what enforcement points of others and of other versions recorded.
        except (LookupError, TypeError, AttributeError, ValueError):
            return Why.unreadable
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[recorded] = self._decide(recorded)
        return known

    def _decide(self, recorded: _Recorded) -> Replayed | Why:
        role, agent_id, task, source, level, before, policy_name, check, frozen, masked = recorded
        if not _is_readable(recorded):
            return Why.unreadable
        as_recorded = (role, source, before, policy_name)
        if before == "DENY":
            if check in _BY_IDENTITY or (frozen and (check, policy_name) == (None, TENANT_FROZEN)):
                return Replayed(*as_recorded, before, policy_name)
            if check not in _BY_POLICIES:
                return Why.unknown_check
        if masked:
            return Why.masked
        if level not in RANK:
            return Why.unknown_level
        # The user decides nothing, and the entry only commits to it.
        retrieval = Retrieval(role, "", source, level, task_type=task, agent_id=agent_id)  # type: ignore[arg-type]  # it is one of the levels
        decision = evaluate_admitted(retrieval, self._role(role))
        return Replayed(*as_recorded, decision.decision, decision.policy_name)

    def _role(self, name: str) -> Role | None:
        if name not in self._policies:
            return None
        if name not in self._roles:
            self._roles[name] = compile_role(name, self._policies[name])
        return self._roles[name]


def _read(entry: Mapping[str, Any]) -> _Recorded | None:
    """Return the parts of a `decision` entry on which its replay depends; None if it was decided
    without facts."""
    pub, masked = entry["pub"], entry["masked"]
    request, response, facts = pub["request"], pub["response"], pub["facts"]
    if not facts:
        return None
    return _Recorded(
        request["agent_role"],
        request.get("agent_id"),
        request.get("task_type"),
        request["source_id"],
        request["sensitivity_level"],
        response["decision"],
        response["policy_name"],
        response.get("check"),
        facts.get("frozen_at") is not None,
        # Paths of our own are `user_id`, `query` and `detail`.
        bool(masked) and any(path.rpartition(".")[2] in _DECIDING for path, _ in masked),
    )


def _is_readable(recorded: _Recorded) -> bool:
    required = (recorded.agent_role, recorded.source_id, recorded.level, recorded.policy_name)
    optional = (recorded.agent_id, recorded.task_type, recorded.check)
    return (
        all(type(each) is str for each in required)
        and all(each is None or type(each) is str for each in optional)
        and recorded.decision in ("ALLOW", "DENY")
    )
