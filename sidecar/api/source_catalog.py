"""What an agent may read through this sidecar, so that it need not learn by failing.

Put together of the configured sources and what the policy set says of the caller's own role. It
lets nothing out by itself and is recorded nowhere: every retrieval is judged when it is made.

Knows settings and policies. Knows no HTTP.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from policies.definitions.model import RANK, Key
from policies.definitions.wildcard import matcher, may_begin
from policies.evaluate import admitted, gather
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, Unavailable, invalid
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet
from policies.sets.role import Clause
from sidecar.enforce import Enforcer
from sidecar.identity import AgentIdentity
from sidecar.policy_cache.cache_file import CacheDamaged
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full.full_store import NoPolicySet
from sidecar.protocols.messages import SourceRef
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source

_ADMIN = "admin"


class _Caller(NamedTuple):
    """Who the answer is for: a role that the key is tied to, and the key that is judged."""

    agent_id: str | None
    role: str
    key: Key | None


class SourceCatalog:
    """`told` is the answer. `agent` is who speaks through the sources, None where there are
    none."""

    def __init__(
        self,
        sources: tuple[Source, ...],
        agent: AgentIdentity | None,
        policy_set: PolicySet,
        enforcer: Enforcer,
        freshness: Freshness,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._agent = agent
        self._policy_set = policy_set
        self._enforcer = enforcer
        self._freshness = freshness
        self._monotonic = clock.monotonic

    def told(self, key: Key, role: str | None) -> dict[str, Any]:
        """`{agent_id, agent_role, items}` for the holder of `key`, in `role` where its key is good
        for several. Raises `Forbidden` for a key that has no role of its own here, `Invalid` where
        one of several has to be named, `Unavailable` where the policy set is too old to say, and
        `NotHeld` where a document has to be fetched first."""
        now = self._monotonic()
        if self._freshness.stale(now):
            raise Unavailable(self._freshness.reason(now))
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
            # An administrator asks what the agent may do, and may read its policies anyway.
            if key.scope == _ADMIN or (own is not None and own.key_id == key.key_id):
                return _Caller(agent.id, _one_of((agent.role,), role), own)
        bound = key.bound_agent_id
        entry = None if bound is None else self._policy_set.agent(bound)
        roles = key.permitted_roles or (() if entry is None else entry.permitted_roles)
        return _Caller(bound, _one_of(roles, role), key)

    def _clauses(self, caller: _Caller) -> list[Clause]:
        """The policies that apply to the caller."""
        # INVARIANT: none of a role that it may not act in, and none that admits other agents only.
        if caller.key is None:
            return []
        asked = Retrieval(caller.role, caller.role, caller.role, "low", agent_id=caller.agent_id)
        facts = gather(self._policy_set, caller.key, asked)
        if facts.role is None or not admitted(asked, facts):
            return []
        return [each for each in facts.role.clauses if _admits(each, caller.agent_id)]

    def _item(self, source: Source, caller: _Caller, clauses: list[Clause]) -> dict[str, Any]:
        concerns = _concerns(source)
        allowed, denied = set[str](), set[str]()
        most: str | None = None
        for each in clauses:
            found = set(filter(concerns, each.allowed_sources))
            allowed |= found
            denied.update(filter(concerns, each.denied_sources))
            if found and (most is None or each.rank > RANK[most]):
                most = each.max_sensitivity
        return {
            "alias": source.alias,
            "kind": source.kind,
            "listen": None if source.listen is None else str(source.listen),
            "hosts": list(source.hosts),
            "path": source.path,
            "sensitivity": source.sensitivity,
            "writes": source.writes,
            "mode": source.mode,
            "max_sensitivity": most,
            "sources": [self._judged(place, source, caller) for place in _places(source)],
            "patterns": {"allowed": sorted(allowed), "denied": sorted(denied)},
        }

    def _judged(self, place: SourceRef, source: Source, caller: _Caller) -> dict[str, Any]:
        retrieval = Retrieval(
            caller.role,
            source.defaults.user or caller.agent_id or caller.role,
            place.source_id,
            place.sensitivity,
            None,  # a session is claimed by reading in it, and by nothing else
            source.defaults.task,
            caller.agent_id,
            None,
            source.kind,
        )
        return {
            "source_id": place.source_id,
            "sensitivity": place.sensitivity,
            "allowed": self._enforcer.permits(retrieval, caller.key),
        }


def _one_of(roles: tuple[str, ...], asked: str | None) -> str:
    if not roles:
        raise Forbidden("the API key has no role of its own, and is not this sidecar's agent's")
    if asked is None and len(roles) > 1:
        raise invalid(["agent_role: is required: the API key is good for several"], "query")
    if asked is not None and asked not in roles:
        raise Forbidden("the API key is not good for the role in `agent_role`")
    return asked or roles[0]


def _admits(clause: Clause, agent_id: str | None) -> bool:
    return clause.admits is None or (agent_id is not None and clause.admits(agent_id))


def _places(source: Source) -> list[SourceRef]:
    """What the configuration names, the source as such first. What a route only sketches, with a
    `{name}` in it, can't be judged before it is asked for."""
    naming = SourceNames(source)
    places = [naming.whole, *map(naming.named, source.names)]
    for route in source.routes:
        if route.source_id is not None and "{" not in route.source_id and route.class_ != "deny":
            places.append(naming.named(route.source_id, route.sensitivity))
    return list(dict.fromkeys(places))


def _concerns(source: Source) -> Callable[[str], bool]:
    """Whether a policy's pattern can be of something in the source."""
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
        # The first look is for the cost of it: hardly any pattern is worth compiling.
        return any(may_begin(pattern, name) and matcher([pattern])(name) for name in names)

    return concerns
