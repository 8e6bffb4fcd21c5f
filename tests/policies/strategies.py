"""Hypothesis strategies: identifiers that `CONTRACT.md` allows, calls, policies and facts.

Names often come from a small pool, so that calls and policies match, and are often arbitrary, so
that no encoding passes by luck.
"""

from hypothesis import strategies as st

from policies.checks.finding import Facts
from policies.definitions.model import (
    AGENT_STATUSES,
    SCOPES,
    SENSITIVITIES,
    Agent,
    Key,
    Policy,
    Session,
    TenantSettings,
)
from policies.retrieval import Retrieval
from policies.sets.role import compile_role

CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"])
IDENTIFIERS = st.one_of(
    st.text(CHARACTERS, min_size=1, max_size=40),
    st.text(st.sampled_from("\"\\/'é😀\u2028</{}:,"), min_size=1, max_size=256),
)
POOL = st.sampled_from(["a", "b", "ab", "A", "a*", "b?", "*", "?", "[a]", "a/b", "é", "e\u0301"])
NAMES = st.one_of(POOL, POOL, IDENTIFIERS)
LISTS = st.lists(NAMES, max_size=4).map(tuple)
FEW = st.sampled_from([(), (), ("a",), ("b?", "A"), ("*",), ("a*", "é")]) | LISTS
MANY = st.sampled_from([("*",), ("a*", "b", "[a]"), ("*b*", "?", "a")]) | LISTS
ROLES = st.sampled_from(["r", "R", "s"])
LEVELS = st.sampled_from(SENSITIVITIES)


def maybe(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    return st.none() | strategy


RETRIEVALS = st.builds(
    Retrieval,
    agent_role=ROLES,
    user_id=IDENTIFIERS,
    source_id=NAMES,
    sensitivity_level=LEVELS,
    session_id=maybe(NAMES),
    task_type=maybe(NAMES),
    agent_id=maybe(NAMES),
    query=maybe(st.text(st.characters(exclude_categories=["Cs"]), max_size=60)),
    source_type=st.sampled_from(["api", "sdk", "x-1_y"]),
    context_hash=maybe(st.just("0f" * 32)),
    levels=st.none(),
    masked=st.just(()),
    statement=st.none(),
)


def policies(role: str) -> st.SearchStrategy[list[Policy]]:
    """Policies of one role, each with its own name."""
    policy = st.builds(
        Policy,
        policy_id=st.just("pol_1"),
        version=st.integers(1, 2**53 - 1),
        name=NAMES,
        agent_role=st.just(role),
        allowed_sources=MANY,
        denied_sources=FEW,
        max_sensitivity=LEVELS,
        allowed_tasks=FEW,
        denied_tasks=FEW,
        session_ttl_minutes=st.none() | st.integers(1, 9999),
        permitted_agent_ids=FEW,
    )
    return st.lists(policy, max_size=4, unique_by=lambda each: each.name)


KEYS = st.builds(
    Key,
    key_id=st.sampled_from(["key_1", "key_2"]),
    scope=st.sampled_from(SCOPES),
    bound_agent_id=st.none() | st.none() | NAMES,
    permitted_roles=st.just(()) | st.lists(ROLES, max_size=2).map(tuple),
    expires_at=st.none() | st.integers(0, 2**53 - 1),
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Retrieval, Facts, list[Policy]]:
    """A call, its facts, and the policies of its role. In three of four draws the caller is valid;
    otherwise most would end at the first checks."""
    call = draw(RETRIEVALS)
    found = draw(policies(call.agent_role))
    role = compile_role(call.agent_role, found) if found else None
    agent = session = None
    if draw(st.sampled_from([True, True, True, False])):
        if call.agent_id is not None:
            agent = Agent(call.agent_id, "approved", (call.agent_role,))
        key = Key("key_1", "evaluate", draw(st.sampled_from([None, call.agent_id])))
        return call, Facts(TenantSettings("t"), key, agent, session, role, 1), found
    if call.agent_id is not None and draw(st.sampled_from([True, True, False])):
        agent = Agent(
            call.agent_id,
            draw(st.sampled_from(["approved"] * 4 + list(AGENT_STATUSES))),
            tuple(draw(st.lists(ROLES, min_size=1, max_size=3))),
            draw(st.sampled_from([None, None, "key_1", "key_2"])),
        )
    if call.session_id is not None and draw(st.booleans()):
        session = Session(
            call.session_id,
            draw(st.sampled_from(["active", "active", "expired", "revoked"])),
            draw(st.sampled_from([call.agent_role, "other"])),
            draw(st.sampled_from([call.agent_id, call.agent_id, None, "other"])),
        )
    required = draw(st.sampled_from([False, False, True]))
    frozen_at = draw(st.sampled_from([None] * 7 + [1_767_225_600_000_000]))
    settings = TenantSettings("t", require_agent_id=required, frozen_at=frozen_at)
    revision = draw(st.integers(0, 2**53 - 1))
    return call, Facts(settings, draw(KEYS), agent, session, role, revision), found
