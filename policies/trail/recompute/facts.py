"""Reads back what a `decision` entry records: the retrieval, the facts, and the response.

Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` for what no version has recorded.
Knows nothing of whether it is true.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
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
    if there was none, as are `key_digest` and `agent_digest`. `time` is when the enforcement point
    decided, in microseconds."""

    retrieval: Retrieval
    settings: TenantSettings
    key: Key
    agent: Agent | None
    session: Session | None
    role: str | None
    key_digest: str
    agent_digest: str | None
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
    cited_agent, agent_digest = (None, None) if agent is None else _agent(*_agent_members(agent))
    key, key_digest = _key(*_key_members(facts["key"]))
    return RecordedFacts(
        _retrieval(pub["request"]),
        settings,
        key,
        cited_agent,
        None if session is None else _session(session),
        role,
        key_digest,
        agent_digest,
        facts["revision"],
        micros(entry["ts"] if src is None else src["t"]),
        src is not None,
    )


def cited_role(entry: Mapping[str, Any]) -> str | None:
    """The digest of the document that a `decision` entry cites, as far as it can be read."""
    facts = entry["pub"].get("facts")
    role = facts.get("role") if isinstance(facts, dict) else None
    return role if isinstance(role, str) else None


# The same few agents and keys decide most of a log. Making one again, encoded and hashed, takes a
# third of the time that the rest of a decision does.
@lru_cache(maxsize=1024, typed=True)
def _agent(*members: Any) -> tuple[Agent, str]:
    agent = Agent(*members)
    return agent, hashlib.sha256(agent.wire).hexdigest()


@lru_cache(maxsize=1024, typed=True)
def _key(*members: Any) -> tuple[Key, str]:
    key = Key(*members)
    return key, hashlib.sha256(key.wire).hexdigest()


def _agent_members(wire: Mapping[str, Any]) -> tuple[Any, ...]:
    roles = tuple(wire["permitted_roles"])
    return wire["agent_id"], wire["status"], roles, wire["bound_key_id"]


def _key_members(wire: Mapping[str, Any]) -> tuple[Any, ...]:
    roles = tuple(wire["permitted_roles"])
    return wire["key_id"], wire["scope"], wire["bound_agent_id"], roles, wire["expires_at"]


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
