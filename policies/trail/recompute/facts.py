"""Reads back what a `decision` entry records: the retrieval, the facts, and the response.

Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` for a form that no version has
recorded. Doesn't know if what is recorded is true.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from policies.checks.finding import Facts
from policies.definitions.model import RANK, Agent, Key, Policy, Session, TenantSettings
from policies.ground.canonical import micros
from policies.levels import Levels
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from policies.sets.source_levels import SourceLevels
from policies.trail.entry import time_of

_RESPONSE = ("decision", "policy_name", "policy_id", "policy_version", "reason", "check")


class RecordedFacts(NamedTuple):
    """The facts by which a decision was made, as its entry records them, without the documents: it
    holds only their digests.

    `role`, `agent_digest` and `key_digest` are the digests of the documents of the role's policies,
    the agent and the key; the first two are None if there was no such document. `sources` is the
    digest of the tenant's sensitivity levels; None if there were none, or if they were ignored.
    `time` is when the enforcement point decided, in microseconds since 1970 UTC; if that time is
    doubtful, when the record arrived.
    """

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
    sources: str | None = None

    @property
    def needs_role(self) -> bool:
        """True if the decision depends on the role's policies: the call names no agent, or a
        registered one that may act in the role."""
        if self.retrieval.agent_id is None:
            return True
        return self.agent is not None and self.retrieval.agent_role in self.agent.permitted_roles

    def facts(self, role: Role | None, sources: SourceLevels | None = None) -> Facts:
        """Return the facts in the form that `policies.evaluate` takes, with the documents filled
        in."""
        return Facts(
            self.settings, self.key, self.agent, self.session, role, self.revision, sources
        )

    def level_fault(self, sources: SourceLevels | None) -> str | None:
        """Return how the recorded sensitivity levels contradict each other or the tenant's document
        `sources`; None if they don't."""
        levels, source_id = self.retrieval.levels, self.retrieval.source_id
        tenant = None if levels is None else levels.tenant
        if self.sources is None and tenant is not None:
            return "a level of the tenant is recorded, but no document that states it"
        if sources is not None and sources.level(source_id) != tenant:
            return (
                f"the tenant's level is recorded as {_short(tenant)}, and its document states "
                f"{_short(sources.level(source_id))}"
            )
        if levels is not None and levels.effective != self.retrieval.sensitivity_level:
            return (
                f"the level is recorded as `{self.retrieval.sensitivity_level}`, and the highest "
                f"that is stated is `{levels.effective}`"
            )
        return None


def read_facts(entry: Mapping[str, Any]) -> RecordedFacts:
    """Return the facts of a `decision` entry whose `pub.facts` is not empty."""
    pub = entry["pub"]
    facts = pub["facts"]
    agent, session, role = facts.get("agent"), facts.get("session"), facts.get("role")
    sources = facts.get("sources")
    if not all(each is None or isinstance(each, str) for each in (role, sources)):
        raise TypeError("`role` and `sources` must be digests")
    if type(facts["revision"]) is not int:
        raise TypeError("`revision` must be a number")
    settings = TenantSettings(
        "", require_agent_id=facts["require_agent_id"], frozen_at=facts.get("frozen_at")
    )
    cited_agent, agent_digest = (None, None) if agent is None else _agent(*_agent_members(agent))
    key, key_digest = _key(*_key_members(facts["key"]))
    return RecordedFacts(
        _retrieval(pub["request"], facts.get("levels")),
        settings,
        key,
        cited_agent,
        None if session is None else _session(session),
        role,
        key_digest,
        agent_digest,
        facts["revision"],
        micros(time_of(entry)),
        "src" in entry,
        sources,
    )


def cited_role(entry: Mapping[str, Any]) -> str | None:
    """Return the digest of the role's document that a `decision` entry cites; None if it cites
    none, or can't be read."""
    facts = entry["pub"].get("facts")
    role = facts.get("role") if isinstance(facts, dict) else None
    return role if isinstance(role, str) else None


def cited_digests(entry: Mapping[str, Any]) -> list[str]:
    """Return the digests of all documents that a `decision` entry cites, as far as they can be
    read."""
    return cited_in(entry["pub"].get("facts"))


def cited_in(facts: object) -> list[str]:
    """Return the digests of the documents that `facts`, taken from a `decision` entry, cite."""
    found = [facts.get(name) for name in ("role", "sources")] if isinstance(facts, dict) else []
    return [digest for digest in found if isinstance(digest, str)]


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


def _retrieval(request: Mapping[str, Any], stated: Mapping[str, Any] | None) -> Retrieval:
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
        levels=None if stated is None else _levels(stated),
    )


def _levels(stated: Mapping[str, Any]) -> Levels:
    levels = Levels(*map(stated.get, Levels._fields))
    if not stated or stated.keys() - set(Levels._fields) or set(stated.values()) - RANK.keys():
        raise ValueError("`levels` must be levels of `request`, `sidecar` and `tenant`")
    return levels


def _session(wire: Mapping[str, Any]) -> Session:
    return Session(wire["session_id"], wire["state"], wire["agent_role"], wire["agent_id"])


def read_role(body: bytes) -> Role:
    """Return the role that a document's bytes describe, compiled."""
    policies = [Policy.from_wire(wire) for wire in orjson.loads(body)]
    return compile_role(policies[0].agent_role, policies, hashlib.sha256(body).hexdigest())


def difference(recorded: Mapping[str, Any], derived: Mapping[str, Any]) -> str | None:
    """Return a sentence on the first member in which two responses differ, with both values; None
    if they are equal. `recorded` is the response in the log, `derived` the one that follows
    again."""
    for name in (*_RESPONSE, *sorted(recorded.keys() - set(_RESPONSE))):
        if recorded.get(name) != derived.get(name):
            return (
                f"`{name}` is recorded as {_short(recorded.get(name))}, and follows as "
                f"{_short(derived.get(name))}"
            )
    return None


def _short(value: object) -> str:
    return "absent" if value is None else f"`{value}`"[:200]
