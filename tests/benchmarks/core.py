"""The pure core: a decision, its record, and verification. One process, no network."""

import hashlib
from dataclasses import replace
from itertools import cycle
from typing import Any

import orjson
import yaml

from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.evaluate import evaluate, gather
from policies.ground.canonical import b64, rfc3339
from policies.retrieval import Retrieval, parse_retrieval
from policies.sets.policy_set import PolicySet, agent_document, role_document, tenant_document
from policies.trail.entry import StoredRow
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import Record, decision_record
from policies.trail.spool_chain import core_hash, src_member
from policies.trail.verify import Verifier
from tests.benchmarks import mixed
from tests.benchmarks.measure import Figure, per_call

SALT = bytes(range(32))
EVENT = "019aa37e-fdfb-756d-b791-2db445de55d5"
KEY = Key("key_1jI3R6gdTovEwWYuZO6Ykm", "evaluate")
TIME = 1_763_679_600_123_456
BODY = {
    "agent_role": "loan_underwriter",
    "user_id": "ann@example.com",
    "source_id": "contracts",
    "sensitivity_level": "medium",
    "agent_id": "agt_loans",
}
POLICY = Policy(
    "pol_1jI3R6gdTovEwWYuZO6Ykm",
    1,
    "underwriting-reads",
    "loan_underwriter",
    ("contracts", "credit", "handbook"),
    ("payroll",),
    "high",
)


def policy_set(policies: int) -> PolicySet:
    """A tenant with many policies, each for its own role."""
    others = (
        replace(POLICY, policy_id=f"pol_{n}", name=f"policy-{n}", agent_role=f"role-{n}")
        for n in range(policies - 1)
    )
    documents = {f"role/{other.agent_role}": role_document([other]) for other in others}
    documents["tenant"] = tenant_document(TenantSettings("default"))
    documents["agent/agt_loans"] = agent_document(
        Agent("agt_loans", "approved", ("loan_underwriter",))
    )
    documents["role/loan_underwriter"] = role_document([POLICY])
    return PolicySet(documents.get)


def decide(known: PolicySet, retrieval: Retrieval) -> Record:
    facts = gather(known, KEY, retrieval)
    decision = evaluate(retrieval, facts)
    return decision_record(retrieval, decision, facts, event_id=EVENT, salt=SALT)


def decision_cpu() -> list[Figure]:
    known = policy_set(10)
    plain = parse_retrieval(BODY)
    asked = parse_retrieval({**BODY, "query": "which clauses bind the lender after the closing?"})
    taken = {
        "": per_call(lambda: decide(known, plain)),
        ", with query text": per_call(lambda: decide(known, asked)),
    }
    return [
        Figure(f"evaluate and record{name}, CPU", f"{cpu:.1f} µs", None, "<= 12 µs", cpu <= 12)
        for name, cpu in taken.items()
    ]


def policies_in_role() -> list[Figure]:
    """The different requests of `mixed`, to roles of ten policies each."""
    found = parse_definitions(mixed.policies())
    documents = {f"role/{role}": role_document(group) for role, group in found.items()}
    documents["tenant"] = tenant_document(TenantSettings("default"))
    for role in range(mixed.ROLES):
        agent = Agent(f"agent-{role}", "approved", (f"role-{role}",))
        documents[f"agent/{agent.agent_id}"] = agent_document(agent)
    known = PolicySet(documents.get)
    bodies = (orjson.loads(each.split(b"\r\n\r\n")[1]) for each in mixed.evaluations("").requests)
    asked = cycle([parse_retrieval({**body, "session_id": None}) for body in bodies])
    cpu = per_call(lambda: decide(known, next(asked)))
    name = "evaluate and record, ten policies a role, CPU"
    return [Figure(name, f"{cpu:.1f} µs", None, "", True)]


def parse_definitions(text: str) -> dict[str, list[Policy]]:
    """The policies of a file, by role."""
    found: dict[str, list[Policy]] = {}
    for number, each in enumerate(yaml.safe_load(text)["policies"]):
        fields: dict[str, Any] = {
            name: tuple(it) if isinstance(it, list) else it for name, it in each.items()
        }
        policy = Policy(policy_id=f"pol_{number}", version=1, **fields)
        found.setdefault(policy.agent_role, []).append(policy)
    return found


def policies_in_tenant() -> list[Figure]:
    retrieval = parse_retrieval(BODY)
    few, many = policy_set(10), policy_set(100_000)

    def one(known: PolicySet) -> float:
        return per_call(lambda: evaluate(retrieval, gather(known, KEY, retrieval)))

    small, large = min(one(few), one(few)), min(one(many), one(many))
    ratio = large / small
    value = f"{large:.2f} µs against {small:.2f} µs"
    return [Figure("decision, 100,000 against 10 policies", value, ratio, "<= 1.2", ratio <= 1.2)]


def chain(size: int, sourced: bool) -> list[StoredRow]:
    """A log as written for the control API's own evaluations, or for one sidecar's."""
    known, retrieval = policy_set(10), parse_retrieval(BODY)
    record = decide(known, retrieval)
    rows, prev, source_prev = [], "", ""
    for seq in range(size):
        ts = rfc3339(TIME + seq)
        if sourced:
            core = record.core(src_member("sidecar-1", "inst", seq, source_prev, ts))
            source_prev = b64(core_hash(core))
            at = core.index(b',"masked"')
            end = core.index(b',"src":')
            entry = b'%b,"log":"log_1"%b,"seq":%d%b,"ts":"%b","v":1}' % (
                core[:at],
                core[at:end].replace(b',"pub":', b',"prev":"%b","pub":' % prev.encode(), 1),
                seq,
                core[end:-7],
                ts.encode(),
            )
        else:
            entry = record.entry("log_1", seq, prev, ts)
        rows.append(StoredRow(seq, entry))
        prev = b64(leaf_hash(entry))
    return rows


def verification() -> list[Figure]:
    figures = []
    for name, sourced in (("", False), (", of a sidecar", True)):
        rows = chain(20_000, sourced)

        def walk(rows: list[StoredRow] = rows) -> None:
            report_of = Verifier("log_1")
            report_of.feed_all(rows)
            assert report_of.finish().valid, report_of.finish()

        def floor(rows: list[StoredRow] = rows) -> None:
            for row in rows:
                hashlib.sha256(row.entry).digest()
                orjson.loads(row.entry)

        ours, theirs = per_call(walk, 1, 9), per_call(floor, 1, 9)
        value = f"{20_000 / ours * 1e6:,.0f}/s against {20_000 / theirs * 1e6:,.0f}/s"
        ratio = theirs / ours
        figures.append(Figure(f"verify{name}", value, ratio, ">= 0.6", ratio >= 0.6))
    return figures


def figures() -> list[Figure]:
    return [*decision_cpu(), *policies_in_role(), *policies_in_tenant(), *verification()]
