"""Random calls, policy sets and damage, by a seeded generator: faster than hypothesis, which would
take hours for a million. Names come from a small pool, so that calls and policies match."""

from random import Random
from typing import Any, Literal

import orjson

from policies.candidates import CandidateDecision
from policies.definitions.model import (
    AGENT_STATUSES,
    SCOPES,
    SENSITIVITIES,
    Agent,
    Key,
    Policy,
    Session,
    SessionState,
    TenantSettings,
)
from policies.sets.policy_set import PolicySet, agent_document, role_document, tenant_document

NAMES = ("a", "b", "ab", "A", "a*", "b?", "*", "?", "[a]", "a/b", "é", "e\u0301", '"\\', "😀" * 64)
PATTERNS = ("*", "a*", "*b*", "?", "[a]", "a", "b", "**a", "é?")
ROLES = ("r", "R", "s")
TEXTS = (
    "",
    "who signs?",
    "card 4111 1111 1111 1111",
    "mail ann@example.com",
    "\u2028\x00",
    "x" * 99,
)
# What a member of a JSON document can be, right or wrong.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**53 - 1, 2**53, -(2**63), 2**64 - 1, 1.5, "", "x", "\x00",
    "é" * 257, "0" * 64, "ALLOW", "decision", "redact", "2026-01-01T00:00:00.000000Z", "AAAA",
    "A" * 43 + "=", [], {}, [[]], [["a", "b"]], [["a"]], {"a": 1}, {"É": 1}, {"id": "x"}, [0, 1],
)  # fmt: skip
START = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def body(draw: Random) -> dict[str, Any]:
    """The body of an evaluation; one in eight is not valid."""
    asked: dict[str, Any] = {
        "agent_role": draw.choice(ROLES),
        "user_id": draw.choice(("ann", "ann@example.com", "4111 1111 1111 1111", "\u00a0")),
        "source_id": draw.choice(NAMES),
        "sensitivity_level": draw.choice(SENSITIVITIES),
    }
    optional = {
        "session_id": NAMES,
        "task_type": NAMES,
        "agent_id": NAMES,
        "query": TEXTS,
        "source_type": ("api", "sdk", "x-1_y"),
        "context_hash": ("0f" * 32,),
    }
    asked |= {name: draw.choice(some) for name, some in optional.items() if draw.random() < 0.5}
    if draw.random() < 0.125:
        for name in draw.sample((*asked, *optional), draw.randint(1, 3)):
            asked[name] = draw.choice(ODD)
    return asked


def policy_set(draw: Random) -> PolicySet:
    """A tenant with agents for half of the names, and up to four policies for each role."""
    settings = TenantSettings(
        "default",
        require_agent_id=draw.random() < 0.2,
        pii_masking=draw.random() < 0.2,
        frozen_at=START if draw.random() < 0.05 else None,
    )
    documents: dict[str, bytes | None] = {"tenant": tenant_document(settings)}
    for role in ROLES:
        names = draw.sample(NAMES[:8], draw.randint(0, 4))
        if names:
            policies = [_policy(draw, name, role) for name in sorted(names)]
            documents[f"role/{role}"] = role_document(policies)
    for name in draw.sample(NAMES, len(NAMES) // 2):
        status = draw.choice(AGENT_STATUSES) if draw.random() < 0.4 else "approved"
        roles = tuple(draw.sample(ROLES, draw.randint(1, 3)))
        bound = draw.choice((None, None, None, "key_1", "key_2"))
        documents[f"agent/{name}"] = agent_document(Agent(name, status, roles, bound))
    known = PolicySet(documents.get)
    known.apply((), draw.choice((0, 1, 2**53 - 1)))
    return known


def _policy(draw: Random, name: str, role: str) -> Policy:
    def some(pool: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(draw.sample(pool, draw.randint(0, most)))

    return Policy(
        f"pol_{name}",
        draw.choice((1, 7, 2**53 - 1)),
        name,
        role,
        draw.choice((("*",), some(PATTERNS, 5))),
        some(PATTERNS[1:], 2) if draw.random() < 0.3 else (),
        draw.choice(SENSITIVITIES),
        some(NAMES, 8) if draw.random() < 0.3 else (),
        some(NAMES, 3) if draw.random() < 0.3 else (),
        None,
        some(PATTERNS, 3) if draw.random() < 0.3 else (),
    )


def key(draw: Random) -> Key:
    bound = draw.choice(NAMES) if draw.random() < 0.1 else None
    roles = tuple(draw.sample(ROLES, 2)) if draw.random() < 0.2 else ()
    expires = START if draw.random() < 0.5 else None
    return Key(draw.choice(("key_1", "key_2")), draw.choice(SCOPES), bound, roles, expires)


def session(draw: Random, session_id: str | None) -> Session | None:
    if session_id is None or draw.random() < 0.3:
        return None
    states: tuple[SessionState, ...] = ("active", "active", "active", "expired", "revoked")
    state = draw.choice(states)
    return Session(session_id, state, draw.choice(ROLES), draw.choice((None, *NAMES[:3])))


def candidates(draw: Random) -> list[CandidateDecision]:
    """What candidates decide otherwise: mostly nothing."""
    told: tuple[tuple[Literal["ALLOW", "DENY", "ERROR"], str | None], ...] = (
        ("ALLOW", None), ("DENY", "source"), ("ERROR", None),
    )  # fmt: skip
    made = []
    for name in draw.sample(NAMES[:8], draw.choice((0, 0, 1, 3))):
        decision, check = draw.choice(told)
        made.append(CandidateDecision(name, draw.choice((1, 2**53 - 1)), decision, name, check))
    return made


def damaged(draw: Random, raw: bytes) -> bytes:
    """JSON bytes with one fault: a byte, or a member at any depth that is replaced, removed or
    added."""
    if draw.random() < 0.3:
        at = draw.randrange(len(raw))
        return raw[:at] + bytes((draw.randrange(256),)) * draw.randint(0, 2) + raw[at + 1 :]
    value = orjson.loads(raw)
    place = _container(draw, value)
    if isinstance(place, list):
        if place and draw.random() < 0.7:
            place[draw.randrange(len(place))] = draw.choice(ODD)
        else:
            place.append(draw.choice(ODD))
    else:
        # Adding rarely: most members that nothing expects fail the same first check.
        name = draw.choice([*place]) if place and draw.random() < 0.9 else draw.choice(("z", "É"))
        if draw.random() < 0.3:
            place.pop(name, None)
        else:
            place[name] = draw.choice(ODD)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if draw.random() < 0.9 else 0)


def _container(draw: Random, value: Any) -> Any:
    """A list or object within `value`, or that itself."""
    while True:
        members = value.values() if isinstance(value, dict) else value
        inner = [each for each in members if isinstance(each, dict | list)]
        if not inner or draw.random() < 0.4:
            return value
        value = draw.choice(inner)
