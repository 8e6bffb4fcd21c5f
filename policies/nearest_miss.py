"""Finds the changes, to the call or to the facts, that together would have allowed a denied call.

    steps_to_allow(retrieval, facts)     in the order of the checks, each tried by deciding again

INVARIANT: once every step is applied, `evaluate` allows.

Also suggests how a policy should name a source, if it names only the end of the source's id.

    suggest(retrieval, decision, facts.role)     for a denied call, in words; None without one

For example, a policy says `handbook`, and a sidecar asks for `chroma://db/handbook`. Suggestions
are for those who write policies and read the log: an agent is never told what policies name.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from policies.checks.finding import CheckOutcome, Facts
from policies.checks.order import CALL, CLAUSE, NAMES
from policies.definitions.model import RANK, Agent, Policy
from policies.definitions.wildcard import matcher
from policies.evaluate import Decision, denies_explicitly, evaluate
from policies.retrieval import Retrieval
from policies.sets.role import Clause, Role, compile_role

State = tuple[Retrieval, Facts]


class Step(NamedTuple):
    """One change that a denied call lacks: described in words, and as a function that applies
    it."""

    check: str | None
    """The name of the check that the change satisfies; None for a freeze, which precedes all
    checks."""
    policy_name: str
    words: str
    apply: Callable[[Retrieval, Facts], State]


def steps_to_allow(retrieval: Retrieval, facts: Facts) -> list[Step]:
    """Return the changes that together would have allowed a denied call, in the order of the
    checks."""
    # Find one step at a time and decide again: a step may uncover the next check that fails.
    steps: list[Step] = []
    clauses = 1 if facts.role is None else len(facts.role.clauses)
    # The bound: one freeze, each check of the call once, and two lists for each check of a policy.
    for _ in range(1 + len(CALL) + 2 * len(CLAUSE) * clauses):
        decision = evaluate(retrieval, facts)
        if decision.decision == "ALLOW":
            break
        step = _next(retrieval, facts, decision)
        steps.append(step)
        retrieval, facts = step.apply(retrieval, facts)
    return steps


def _next(retrieval: Retrieval, facts: Facts, decision: Decision) -> Step:
    if facts.settings.frozen_at is not None:
        return _lift_freeze(facts)._replace(policy_name=decision.policy_name)
    assert decision.check is not None  # only a freeze denies before the checks
    if decision.check in _CALL:
        step = _CALL[decision.check](retrieval, facts)
        return step._replace(policy_name=decision.policy_name)
    assert facts.role is not None
    clause = next(each for each in facts.role.clauses if each.name == decision.policy_name)
    # A policy that denies explicitly has to be changed itself: no other can override it.
    if not _blocks(retrieval, clause):
        # Any policy may allow: take the one that fails the fewest checks, preferably the one that
        # the decision named.
        named = clause
        clause = min(
            facts.role.clauses, key=lambda each: (_failures(retrieval, each), each is not named)
        )
    failing = next(
        name
        for name, check in zip(NAMES[-len(CLAUSE) :], CLAUSE, strict=True)
        if check(retrieval, clause).outcome is CheckOutcome.failed
    )
    words, changed = _CLAUSE[failing](retrieval, clause)
    return Step(failing, clause.name, words, _replace_clause(clause, changed))


def _failures(retrieval: Retrieval, clause: Clause) -> int:
    return sum(check(retrieval, clause).outcome is CheckOutcome.failed for check in CLAUSE)


def _blocks(retrieval: Retrieval, clause: Clause) -> bool:
    """Return whether the clause applies and denies explicitly: then no other policy can allow the
    call."""
    applies = CLAUSE[0](retrieval, clause).outcome is not CheckOutcome.failed
    return applies and denies_explicitly(retrieval, clause)


def _replace_clause(old: Clause, new: Clause) -> Callable[[Retrieval, Facts], State]:
    def apply(retrieval: Retrieval, facts: Facts) -> State:
        assert facts.role is not None
        clauses = tuple(new if each is old else each for each in facts.role.clauses)
        role = replace(
            facts.role,
            clauses=clauses,
            denies=lambda source: any(each.denies(source) for each in clauses),
            denied_tasks=frozenset(task for each in clauses for task in each.denied_tasks),
        )
        return retrieval, facts._replace(role=role)

    return apply


# ---- the first six checks: what to change in the call or in the facts


def _step(check: str | None, words: str, **changed: Any) -> Step:
    return Step(check, "", words, lambda retrieval, facts: (retrieval, facts._replace(**changed)))


def _lift_freeze(facts: Facts) -> Step:
    words = "lift the tenant's freeze (`DELETE /v1/freeze`)"
    return _step(None, words, settings=replace(facts.settings, frozen_at=None))


def _name_agent(_: Retrieval, facts: Facts) -> Step:
    # Applied as if the tenant required no agent id: which agent the caller would name is unknown.
    settings = replace(facts.settings, require_agent_id=False)
    words = "name an approved agent in `agent_id`"
    return _step("agent_id_required", words, settings=settings)


def _approve(retrieval: Retrieval, facts: Facts) -> Step:
    agent_id, agent = retrieval.agent_id, facts.agent
    assert agent_id is not None  # the check skips a call that names no agent
    if agent is None:
        words = (
            f"register agent `{agent_id}` with the role `{retrieval.agent_role}`, and approve it"
        )
        agent = Agent(agent_id, "approved", (retrieval.agent_role,))
    elif agent.status == "suspended":
        words = f"lift the suspension of agent `{agent_id}`: set its status to `approved`"
    elif agent.status == "deprecated":
        words = f"agent `{agent_id}` is deprecated for good: register another, and approve it"
    else:
        words = f"approve agent `{agent_id}`"
    return _step("registry", words, agent=replace(agent, status="approved"))


def _permit_role(retrieval: Retrieval, facts: Facts) -> Step:
    role, agent, key = retrieval.agent_role, facts.agent, facts.key
    if agent is not None and role not in agent.permitted_roles:
        words = (
            f"call in one of its roles: {_listed(agent.permitted_roles)}, or add `{role}` to the "
            f"`permitted_roles` of agent `{agent.agent_id}`"
        )
        roles = (*agent.permitted_roles, role)
        return _step("role_restriction", words, agent=replace(agent, permitted_roles=roles))
    words = (
        f"call in one of the key's roles: {_listed(key.permitted_roles)}, or add `{role}` to the "
        f"`permitted_roles` of key `{key.key_id}`"
    )
    roles = (*key.permitted_roles, role)
    return _step("role_restriction", words, key=replace(key, permitted_roles=roles))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _unbind(retrieval: Retrieval, facts: Facts) -> Step:
    key, agent = facts.key, facts.agent
    if key.bound_agent_id is not None and key.bound_agent_id != retrieval.agent_id:
        words = f"call as agent `{key.bound_agent_id}`, or with a key that is not bound to it"
        return _step("binding", words, key=replace(key, bound_agent_id=None))
    assert agent is not None
    words = f"call with key `{agent.bound_key_id}`, to which agent `{agent.agent_id}` is bound"
    return _step("binding", words, agent=replace(agent, bound_key_id=None))


def _new_session(_: Retrieval, _facts: Facts) -> Step:
    # Applied as if the session were never claimed: the call would then own it.
    return _step("session", "begin a session of its own, under a new `session_id`", session=None)


def _new_policy(retrieval: Retrieval, _facts: Facts) -> Step:
    role, source, level = retrieval.agent_role, retrieval.source_id, retrieval.sensitivity_level
    policy = Policy("", 0, "new", role, (source,), (), level)
    words = f"create a policy for role `{role}` that allows `{source}` at `{level}`"
    return _step("policy_exists", words, role=compile_role(role, [policy]))


_CALL: dict[str, Callable[[Retrieval, Facts], Step]] = {
    "agent_id_required": _name_agent,
    "registry": _approve,
    "role_restriction": _permit_role,
    "binding": _unbind,
    "session": _new_session,
    "policy_exists": _new_policy,
}


# ---- the last four checks: what to change in a policy


def _permit_agent(retrieval: Retrieval, clause: Clause) -> tuple[str, Clause]:
    if retrieval.agent_id is None:
        words = f"name an agent that policy `{clause.name}` permits in `agent_id`"
    else:
        words = f"add `{retrieval.agent_id}` to `permitted_agent_ids` of policy `{clause.name}`"
    # Applied as if the policy admitted every agent: without an agent id there is none to add.
    return words, replace(clause, admits=None)


def _permit_task(retrieval: Retrieval, clause: Clause) -> tuple[str, Clause]:
    task = retrieval.task_type
    assert task is not None
    if task in clause.denied_tasks:
        words = f"take `{task}` out of `denied_tasks` of policy `{clause.name}`"
        return words, replace(clause, denied_tasks=clause.denied_tasks - {task})
    words = f"add `{task}` to `allowed_tasks` of policy `{clause.name}`"
    return words, replace(clause, allowed_tasks=clause.allowed_tasks | {task})


def _permit_source(retrieval: Retrieval, clause: Clause) -> tuple[str, Clause]:
    source = retrieval.source_id
    if clause.denies(source):
        words = f"take `{source}` out of `denied_sources` of policy `{clause.name}`"
        # A pattern may deny it, so let only this source through, as an exception to the pattern.
        return words, replace(clause, denies=lambda name: name != source and clause.denies(name))
    words = f"add `{source}` to `allowed_sources` of policy `{clause.name}`"
    return words, replace(clause, allows=lambda name: name == source or clause.allows(name))


def _permit_level(retrieval: Retrieval, clause: Clause) -> tuple[str, Clause]:
    level = retrieval.sensitivity_level
    words = (
        f"ask at `{clause.max_sensitivity}` or below, or raise `max_sensitivity` of policy "
        f"`{clause.name}` to `{level}`"
    )
    return words, replace(clause, max_sensitivity=level, rank=RANK[level])


_CLAUSE: dict[str, Callable[[Retrieval, Clause], tuple[str, Clause]]] = {
    "agent_permitted": _permit_agent,
    "task": _permit_task,
    "source": _permit_source,
    "sensitivity": _permit_level,
}


MAX_OTHERS = 1000
"""The most policies of other roles that `suggest` looks through."""


def suggest(
    retrieval: Retrieval, decision: Decision, role: Role | None, others: Iterable[Clause] = ()
) -> str | None:
    """Return a sentence that says how a policy should name the denied source, if a policy names
    only the end of the source's id; None otherwise. `others` are policies of other roles, looked
    through if the call's own role has no policy."""
    if decision.check == "source" and role is not None and not role.denies(retrieval.source_id):
        return named_by(retrieval.source_id, role.clauses)
    if decision.check == "policy_exists":
        return named_by(retrieval.source_id, tuple(islice(others, MAX_OTHERS)))
    return None


def named_by(source_id: str, clauses: tuple[Clause, ...]) -> str | None:
    """Return a sentence that says which entry to write in `allowed_sources`, by the first of
    `clauses` that allows only the end of `source_id`; None if there is no such policy."""
    # The longest end first: it says the most.
    for end in _ends(source_id):
        for clause in clauses:
            if clause.allows(end) and not clause.allows(source_id):
                entry = next(each for each in clause.allowed_sources if matcher((each,))(end))
                whole = source_id.removesuffix(end) + entry
                return (
                    f"policy `{clause.name}` names `{entry}`, and this source's whole id is "
                    f"`{source_id}`: write `{whole}` in `allowed_sources`"
                )
    return None


def _ends(source_id: str) -> Iterator[str]:
    """Yield the text that follows each `/` of `source_id`, the longest first: for
    `chroma://db/handbook`, `db/handbook` and `handbook`."""
    rest = source_id.partition("://")[2] or source_id.partition("/")[2]
    while rest:
        yield rest
        rest = rest.partition("/")[2]
