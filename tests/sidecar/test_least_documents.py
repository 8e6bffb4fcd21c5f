"""A sidecar decides and records the same with the documents of its own agent as with all of the
tenant's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from control_api.fleet.document_owners import KeyOwner, Owners
from control_api.fleet.set_pages import Reader, visible_to
from control_api.store.queries.documents import StoredDocument
from policies.definitions.model import (
    AGENT_STATUSES,
    Agent,
    Candidate,
    Key,
    Policy,
    Sensitivity,
    Session,
    TenantSettings,
)
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden
from policies.retrieval import Retrieval
from policies.sets.policy_set import (
    PolicySet,
    agent_document,
    agent_name,
    candidate_name,
    key_document,
    key_name,
    role_document,
    role_name,
    session_document,
    session_name,
    tenant_document,
)
from policies.sets.source_levels import SOURCES, sources_document
from policies.trail.record import Record, decision_record
from sidecar.authzen.mapping import Mapper
from sidecar.authzen.question import Action, Entity, Question
from sidecar.decision_preview import DecisionPreview
from sidecar.enforce import Enforcer
from sidecar.live_keys import EVALUATING_SCOPES, LiveKeys
from sidecar.metrics.metrics import Metrics
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.policy_view import AllDocuments, PolicyView
from sidecar.recorder import RecordedDecision, Recorder, Verdict
from sidecar.sessions import SessionRegistry
from sidecar.settings.sections import AuthzenSettings
from sidecar.unmapped import Unmapped
from tests.policies.strategies import LEVELS, NAMES, policies

OWN, OTHER = "agt_own", "agt_other"
AGENTS = (OWN, OTHER, "agt_unknown")
ROLES = ("r", "s", "t")
SESSIONS = ("s-own", "s-foreign", "s-new")
CLOCK = Clock(now=lambda: 0, monotonic=lambda: 0.0)
DIGESTS = {name: bytes([at] * 32) for at, name in enumerate(("unbound", "own", "foreign", "bot"))}


class World:
    """All documents of a tenant, and whose they are."""

    def __init__(
        self,
        role_policies: Mapping[str, Sequence[Policy]],
        permitted: Sequence[str],
        status: str,
        settings: TenantSettings,
        levels: Mapping[str, Sensitivity],
        key_roles: Sequence[str],
        revoked: Sequence[str],
    ) -> None:
        self.keys = {
            "unbound": Key("key_u", "evaluate", None, tuple(key_roles)),
            "own": Key("key_o", "evaluate", OWN),
            "foreign": Key("key_f", "evaluate", OTHER),
            "bot": Key("key_s", "sidecar", agent_ids=("*",)),
        }
        self.sessions = {"s-own": ("r", OWN), "s-foreign": ("s", OTHER)}
        self.revoked = revoked
        own = Agent(OWN, cast(Any, status), tuple(permitted))
        bodies = {
            "tenant": tenant_document(settings),
            SOURCES: sources_document(levels),
            agent_name(OWN): agent_document(own),
            agent_name(OTHER): agent_document(Agent(OTHER, "approved", ("s",))),
            **{role_name(role): role_document(each) for role, each in role_policies.items()},
            **{
                candidate_name("c", role): role_document(each[1:])
                for role, each in role_policies.items()
            },
            **{key_name(DIGESTS[name]): key_document(key) for name, key in self.keys.items()},
            **{session_name(each): session_document(each) for each in revoked},
        }
        self.all = {name: body for name, body in bodies.items() if body is not None}
        reader = Reader(OWN, frozenset(permitted))
        owners = Owners(
            {
                key_name(DIGESTS[n]): KeyOwner(k.scope, k.bound_agent_id, ())
                for n, k in self.keys.items()
            },
            {session_name(name): agent for name, (_, agent) in self.sessions.items()},
        )
        self.least = {
            name: body
            for name, body in self.all.items()
            if visible_to(StoredDocument(name, 1, "", body), reader, owners)
        }


class Claimed:
    """The sessions that the sidecar knows. Of its own agent's it hears by the policy set; about
    others the control API has just been asked."""

    def __init__(self, world: World, documents: Mapping[str, bytes]) -> None:
        self._world, self._documents = world, documents

    def known(self, session_id: str) -> Session | None:
        if session_id not in self._world.sessions:
            return None
        role, agent_id = self._world.sessions[session_id]
        by_set = session_name(session_id) in self._documents
        told = by_set if agent_id == OWN else session_id in self._world.revoked
        return Session(session_id, "revoked" if told else "active", role, agent_id)

    def holds(self, session_id: str) -> bool:
        return self.known(session_id) is not None


class Kept:
    """Takes verdicts, and makes their records with the same salt for each."""

    def note_retrieval(self, *_: object) -> None:
        raise AssertionError

    def __init__(self) -> None:
        self.records: list[Record] = []

    def conclude(self, verdicts: Sequence[Verdict], *, report_mode: bool) -> Any:
        self.records += [
            decision_record(
                each.retrieval,
                each.decision,
                each.facts,
                event_id="0194bd6e-7c00-7a1b-8000-000000000000",
                salt=bytes(32),
                masking=False,
                candidates=each.candidates,
            )
            for each in verdicts
        ]
        durable = cast(asyncio.Future[None], None)
        return [RecordedDecision(each.decision, "", b"", durable) for each in verdicts]


class Sidecar:
    """An enrolled one, with these documents."""

    def __init__(self, world: World, documents: Mapping[str, bytes]) -> None:
        freshness = Freshness(30, CLOCK)
        freshness.confirm(0.0)
        policy_set = PolicySet(documents.get)
        policy_set.revision = 7
        view = PolicyView(policy_set, freshness, AllDocuments(), lambda: 0.0)
        self.kept = Kept()
        self.enforcer = Enforcer(
            DecisionPreview(
                view,
                cast(SessionRegistry, Claimed(world, documents)),
                speaks_for=lambda agent_id: agent_id == OWN,
                enrolled=True,
            ),
            cast(Recorder, self.kept),
            Metrics(CollectorRegistry()),
            bytes,
        )
        speaks_for = self.enforcer.preview.speaks_for
        self.mapper = Mapper(AuthzenSettings(), speaks_for)
        self.keys = LiveKeys(policy_set, CLOCK, speaks_for)

    def answer(self, presented: str, call: Retrieval, *, asked: bool) -> int | str | Record:
        """What a call gets: 403, whether it would claim its session, or its record."""
        try:
            key = self.keys.of_caller(DIGESTS[presented])
        except Forbidden:
            return 403
        if key.scope not in EVALUATING_SCOPES:
            return 403
        if asked:  # by AuthZEN, naming no role
            agent_id = call.agent_id
            subject = Entity("user", "u", {}) if agent_id is None else Entity("agent", agent_id, {})
            resource = Entity("source", call.source_id, {"sensitivity": call.sensitivity_level})
            question = Question(subject, Action("read", {}), resource, {"user_id": call.user_id})
            try:
                call = self.mapper.retrieval(question, key, self.enforcer.policies.policy_set)
            except Unmapped as fault:
                return str(fault)
        if self.enforcer.preview.must_claim(call, key):
            return "claims"
        deciding = self.enforcer.decide((call,), key)
        try:
            deciding.send(None)
        except StopIteration:  # it has nothing to wait for
            return self.kept.records[-1]
        raise AssertionError("a decision by documents that are here waits")


CALLS = st.builds(
    Retrieval,
    agent_role=st.sampled_from(ROLES),
    user_id=st.just("u"),
    source_id=NAMES,
    sensitivity_level=LEVELS,
    session_id=st.none() | st.sampled_from(SESSIONS),
    task_type=st.none() | NAMES,
    agent_id=st.sampled_from([OWN, OWN, OWN, *AGENTS, None]),
    # Of a compiled class, Hypothesis can't read the types.
    query=st.none() | st.text(),
    source_type=st.text(),
    context_hash=st.none() | st.text(),
    levels=st.none(),
    masked=st.just(()),
)
WORLDS = st.builds(
    World,
    role_policies=st.fixed_dictionaries({role: policies(role) for role in ROLES}),
    permitted=st.lists(st.sampled_from(ROLES), min_size=1, max_size=3, unique=True),
    status=st.sampled_from(["approved"] * 5 + list(AGENT_STATUSES)),
    settings=st.builds(
        TenantSettings,
        tenant_id=st.just("t"),
        require_agent_id=st.booleans(),
        frozen_at=st.sampled_from([None] * 5 + [1_767_225_600_000_000]),
        candidates=st.sampled_from([(), (Candidate("c", 3),)]),
    ),
    levels=st.dictionaries(NAMES, LEVELS, max_size=2),
    key_roles=st.lists(st.sampled_from(ROLES), max_size=2, unique=True),
    revoked=st.lists(st.sampled_from(SESSIONS[:2]), unique=True),
)


def rule(role: str, name: str, **fields: Any) -> Policy:
    allowed = {"allowed_sources": ("a*",), "denied_sources": (), "max_sensitivity": "high"}
    return Policy("pol_1", 1, name, role, **{**allowed, **fields})


FIXED: dict[str, Sequence[Policy]] = {
    "r": [
        rule("r", "first"),
        rule("r", "second", permitted_agent_ids=(OTHER,), denied_sources=("*",)),
    ],
    "s": [rule("s", "denies", denied_sources=("*",)), rule("s", "allows", allowed_sources=("*",))],
    "t": [],
}


@pytest.mark.parametrize("frozen_at", [None, 1_767_225_600_000_000])
@pytest.mark.parametrize("presented", sorted(DIGESTS))
def test_every_call_by_every_key_gets_the_same_with_least_documents(
    presented: str, frozen_at: int | None
) -> None:
    settings = TenantSettings("t", frozen_at=frozen_at, candidates=(Candidate("c", 3),))
    world = World(FIXED, ("r", "t"), "approved", settings, {"a": "low"}, (), SESSIONS[:2])
    assert role_name("s") in world.all.keys() - world.least.keys()
    full, least = (Sidecar(world, each) for each in (world.all, world.least))
    seen = set()
    for agent_id, role, session_id, asked in product(
        (*AGENTS, None), ROLES, (*SESSIONS, None), (False, True)
    ):
        call = Retrieval(role, "u", "a", "low", session_id, agent_id=agent_id)
        answer = full.answer(presented, call, asked=asked)
        assert least.answer(presented, call, asked=asked) == answer
        seen.add(
            answer
            if isinstance(answer, int | str)
            else orjson.loads(answer.pub)["response"]["policy_name"]
        )
    if presented in ("foreign", "bot"):
        assert seen == {403}
    elif frozen_at is not None:
        assert seen == {"tenant_frozen"}
    else:
        denials = {"key_agent_binding", "role_not_permitted", "session_revoked", "default_deny"}
        assert seen == denials | {"claims", "first"}


@pytest.mark.deep(stands_in="test_every_call_by_every_key_gets_the_same_with_least_documents")
@given(WORLDS, CALLS, st.sampled_from(sorted(DIGESTS)), st.booleans())
def test_a_decision_and_its_record_are_the_same_with_least_documents_as_with_all(
    world: World, call: Retrieval, presented: str, asked: bool
) -> None:
    full = Sidecar(world, world.all).answer(presented, call, asked=asked)
    assert Sidecar(world, world.least).answer(presented, call, asked=asked) == full
