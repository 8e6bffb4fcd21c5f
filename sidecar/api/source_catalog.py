"""Lists the sources that an agent may read through this sidecar, so that the agent need not find
out by trial.

The list combines the configured sources with the policies of the caller's own role. It grants
nothing and leaves no record: every retrieval is decided when it is made.

Knows settings and policies. Knows no HTTP.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from policies.definitions.model import RANK, Key, Sensitivity
from policies.definitions.wildcard import matcher, may_begin
from policies.evaluate import admitted, gather
from policies.ground.errors import Forbidden, Unavailable, invalid
from policies.retrieval import Retrieval
from policies.sets.policy_set import NoPolicySet
from policies.sets.role import Clause
from sidecar.decision_preview import DecisionPreview
from sidecar.live_keys import AgentIdentity
from sidecar.policy_cache.policy_store import CacheDamaged
from sidecar.protocols.protocol import SourceRef
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source

_ADMIN = "admin"


class _Caller(NamedTuple):
    """The agent and role that the list is for, and the key that decisions are made with."""

    agent_id: str | None
    role: str
    key: Key | None


class SourceCatalog:
    """Lists the sources that a caller may read. `agent` is the sidecar's own agent; None if the
    settings name none."""

    def __init__(
        self, sources: tuple[Source, ...], agent: AgentIdentity | None, preview: DecisionPreview
    ) -> None:
        self._sources = sources
        self._agent = agent
        self._policies = preview.policies
        self._preview = preview

    def snapshot(self, key: Key, role: str | None) -> dict[str, Any]:
        """Return the list `{agent_id, agent_role, items}` for the holder of `key`. `role` selects
        the role if the key permits several.

        Raises `Forbidden` for a key that has no role of its own here, `Invalid` if one of several
        roles must be named, `Unavailable` if the policy set is too old, and `MissingDocument` if a
        document must be fetched first.
        """
        # With a stale set every retrieval is denied, so a list would be wrong.
        if self._policies.stale():
            raise Unavailable(self._policies.freshness.reason(self._policies.monotonic()))
        try:
            caller = self._caller(key, role)
            clauses = self._clauses(caller)
        except (NoPolicySet, CacheDamaged) as error:
            raise Unavailable(f"the policy set can't be read: {error}") from error
        items = [self._item(source, caller, clauses) for source in self._sources]
        return {"agent_id": caller.agent_id, "agent_role": caller.role, "items": items}

    def _caller(self, key: Key, role: str | None) -> _Caller:
        agent = self._agent
        if agent is not None:
            own = agent.known_key()
            # An administrator sees what the agent may do, and may read its policies anyway.
            if key.scope == _ADMIN or (own is not None and own.key_id == key.key_id):
                return _Caller(agent.id, _one_of((agent.role,), role), own)
        bound = key.bound_agent_id
        entry = None if bound is None else self._policies.policy_set.agent(bound)
        roles = key.permitted_roles or (() if entry is None else entry.permitted_roles)
        return _Caller(bound, _one_of(roles, role), key)

    def _clauses(self, caller: _Caller) -> list[Clause]:
        # INVARIANT: no policy of a role in which the caller may not act, and none that admits only
        # other agents, is returned. The list must not disclose the policies of others.
        if caller.key is None or not self._preview.speaks_for(caller.agent_id):
            return []
        # Checks 1 to 4 ask who calls, not for what: user and source are placeholders.
        probe = Retrieval(caller.role, caller.role, caller.role, "low", agent_id=caller.agent_id)
        facts = gather(self._policies.policy_set, caller.key, probe)
        if facts.role is None or not admitted(probe, facts):
            return []
        return [clause for clause in facts.role.clauses if _admits(clause, caller.agent_id)]

    def _item(self, source: Source, caller: _Caller, clauses: list[Clause]) -> dict[str, Any]:
        concerns = _concerns(source)
        allowed, denied = set[str](), set[str]()
        max_sensitivity: Sensitivity | None = None
        for clause in clauses:
            relevant = set(filter(concerns, clause.allowed_sources))
            allowed |= relevant
            denied.update(filter(concerns, clause.denied_sources))
            if relevant and (max_sensitivity is None or clause.rank > RANK[max_sensitivity]):
                max_sensitivity = clause.max_sensitivity
        return {
            "alias": source.alias,
            "kind": source.kind,
            "listen": None if source.listen is None else str(source.listen),
            "grpc_listen": None if source.grpc_listen is None else str(source.grpc_listen),
            "hosts": list(source.hosts),
            "path": source.path,
            "exact_paths": list(source.exact_paths),
            "sensitivity": source.sensitivity,
            "writes": source.writes,
            "mode": source.mode,
            "max_sensitivity": max_sensitivity,
            "sources": [self._verdict(ref, source, caller) for ref in source_refs(source)],
            "patterns": {"allowed": sorted(allowed), "denied": sorted(denied)},
        }

    def _verdict(self, ref: SourceRef, source: Source, caller: _Caller) -> dict[str, Any]:
        retrieval = Retrieval(
            caller.role,
            # No check reads the user, but a retrieval needs one.
            source.defaults.user or caller.agent_id or caller.role,
            ref.source_id,
            ref.sensitivity,
            None,  # listing must not claim a session: only a retrieval does
            source.defaults.task,
            caller.agent_id,
            None,
            source.kind,
        )
        return {
            "source_id": ref.source_id,
            "sensitivity": ref.sensitivity,
            "allowed": self._preview.permits(retrieval, caller.key),
        }


def _one_of(roles: tuple[str, ...], requested: str | None) -> str:
    if not roles:
        raise Forbidden(
            "the API key is bound to no role, and is not the key of this sidecar's agent"
        )
    if requested is None and len(roles) > 1:
        raise invalid(["agent_role: is required: the API key permits several roles"], "query")
    if requested is not None and requested not in roles:
        raise Forbidden("the API key does not permit the role in `agent_role`")
    return requested or roles[0]


def _admits(clause: Clause, agent_id: str | None) -> bool:
    return clause.admits is None or (agent_id is not None and clause.admits(agent_id))


def source_refs(source: Source) -> list[SourceRef]:
    """Return the source ids that the configuration of this source names, the whole source first.
    Leaves out routes that deny, and templates with a `{name}`, which can't be decided before a
    request fills it in."""
    naming = SourceNames(source)
    refs = [naming.whole, *map(naming.named, source.names)]
    for route in source.routes:
        if route.source_id is not None and "{" not in route.source_id and route.class_ != "deny":
            refs.append(naming.named(route.source_id, route.sensitivity))
    # Several routes may lead to one source id.
    return list(dict.fromkeys(refs))


def _concerns(source: Source) -> Callable[[str], bool]:
    """Return a function that tests whether a policy's pattern can match anything in the source."""
    # Match by prefix what exists only at run time (collections, templates filled in), and by name
    # what the configuration names.
    root = f"{source.kind}://{source.alias}"
    prefixes = [f"{root}/"]
    names = [root, *(named.source_id for named in source.names.values())]
    for route in source.routes:
        if route.source_id is not None:
            fixed, template, _ = route.source_id.partition("{")
            (prefixes if template else names).append(fixed)

    def concerns(pattern: str) -> bool:
        if any(may_begin(pattern, prefix) for prefix in prefixes):
            return True
        # `may_begin` is cheap and rules out most patterns, so that few are compiled.
        return any(may_begin(pattern, name) and matcher([pattern])(name) for name in names)

    return concerns
