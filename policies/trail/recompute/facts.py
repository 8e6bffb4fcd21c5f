"""Reads back what a `decision` entry records: the retrieval, the facts, and the response.

Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` for what no version has recorded.
Knows nothing of whether it is true.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, Policy, Session, TenantSettings
from policies.ground.canonical import micros
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role

_RESPONSE = ("decision", "policy_name", "policy_id", "policy_version", "reason", "check")


class RecordedFacts(NamedTuple):
    """The facts of an entry, without the role's policies: `role` is their document's digest, None
    if there was none. `time` is when the enforcement point decided, in microseconds."""

    retrieval: Retrieval
    settings: TenantSettings
    key: Key
    agent: Agent | None
    session: Session | None
    role: str | None
    revision: int
    time: int
    sourced: bool

    def facts(self, role: Role | None) -> Facts:
        """The facts for `policies.evaluate`."""
        return Facts(self.settings, self.key, self.agent, self.session, role, self.revision)


def read_facts(entry: Mapping[str, Any]) -> RecordedFacts:
    """The facts of a `decision` entry that has any."""
    pub, src = entry["pub"], entry.get("src")
    facts = pub["facts"]
    agent, session, role = facts.get("agent"), facts.get("session"), facts.get("role")
    if not (role is None or isinstance(role, str)) or type(facts["revision"]) is not int:
        raise TypeError("`role` must be a digest and `revision` a number")
    settings = TenantSettings(
        "", require_agent_id=facts["require_agent_id"], frozen_at=facts.get("frozen_at")
    )
    return RecordedFacts(
        _retrieval(pub["request"]),
        settings,
        Key.from_wire(facts["key"]),
        None if agent is None else Agent.from_wire(agent),
        None if session is None else _session(session),
        role,
        facts["revision"],
        micros(entry["ts"] if src is None else src["t"]),
        src is not None,
    )


def _retrieval(request: Mapping[str, Any]) -> Retrieval:
    # Nothing is decided by the user or the query: the entry only commits to them.
    return Retrieval(
        request["agent_role"],
        "",
        request["source_id"],
        request["sensitivity_level"],
        request.get("session_id"),
        request.get("task_type"),
        request.get("agent_id"),
        source_type=request["source_type"],
    )


def _session(wire: Mapping[str, Any]) -> Session:
    return Session(wire["session_id"], wire["state"], wire["agent_role"], wire["agent_id"])


def read_role(body: bytes) -> Role:
    """The role of a document's bytes."""
    policies = [Policy.from_wire(wire) for wire in orjson.loads(body)]
    return compile_role(policies[0].agent_role, policies, hashlib.sha256(body).hexdigest())


def difference(recorded: Mapping[str, Any], derived: Mapping[str, Any]) -> str | None:
    """The first member in which the responses differ, with both values; None if they are equal."""
    for name in (*_RESPONSE, *sorted(recorded.keys() - set(_RESPONSE))):
        if recorded.get(name) != derived.get(name):
            return (
                f"`{name}` is recorded as {_short(recorded.get(name))}, and follows as "
                f"{_short(derived.get(name))}"
            )
    return None


def _short(value: object) -> str:
    return "absent" if value is None else f"`{value}`"[:200]
