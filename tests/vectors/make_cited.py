"""What `make` writes of decisions and the documents that they cite: of roles, and of the tenant's
levels of sources."""

from typing import Any

import orjson

from policies.checks.finding import Facts
from policies.definitions.model import Key, Policy, TenantSettings
from policies.evaluate import evaluate, refuse
from policies.retrieval import Retrieval
from policies.sets.policy_set import role_document
from policies.sets.role import compile_role
from policies.sets.source_levels import SourceLevels, at_effective_level, sources_document
from policies.trail.record import Record, decision_record

ROLES = ("analyst", "auditor")
SOURCES = sources_document({"contracts": "medium", "pay*": "critical"})


def cited() -> Any:
    """Decisions of two roles, allowed and denied, with the tenant's levels and without; and one
    that was made outside of the ten checks."""
    assert SOURCES is not None
    documents = [*(role_document([_policy(role)]) or b"" for role in ROLES), SOURCES]
    made = []
    for role in ROLES:
        for source_id in ("contracts", "payroll"):
            asked = Retrieval(role, "ann@example.com", source_id, "low")
            made += [_decided(asked, None), _decided(asked, SourceLevels(SOURCES))]
    refused = refuse("policy_set_stale", "the policy set is too old")
    outside = Retrieval("analyst", "ann@example.com", "contracts", "low")
    made.append(decision_record(outside, refused, None, event_id="event", salt=bytes(32)))
    return {
        "documents": [each.decode() for each in documents],
        "decisions": [_written(each) for each in made],
    }


def _policy(role: str) -> Policy:
    return Policy(f"pol_{role}", 1, f"{role}-reads", role, ("contracts",), (), "high")


def _decided(asked: Retrieval, sources: SourceLevels | None) -> Record:
    role = compile_role(asked.agent_role, [_policy(asked.agent_role)])
    key, settings = Key("key_1", "evaluate"), TenantSettings("default")
    facts = Facts(settings, key, None, None, role, 7, sources)
    asked = at_effective_level(asked, sources)
    return decision_record(asked, evaluate(asked, facts), facts, event_id="event", salt=bytes(32))


def _written(record: Record) -> Any:
    pub = orjson.loads(record.pub)
    facts = pub["facts"] or {}
    return {"cites": [facts[name] for name in ("role", "sources") if name in facts], "pub": pub}
