"""An entry of the log: a record in its place. How it is made, indexed, and shown.

The bytes are the only authority. The columns beside them (`Index`) are derived here, both where an
entry is written and where it is verified, so that a column that says something else is found.
"""

from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import micros, unb64


class Index(NamedTuple):
    """The columns beside an entry's bytes; None where the kind has no such field. `ts` is in
    microseconds since 1970 UTC: the time of the decision, at the enforcement point if there was
    one. `ref` is the event that a lineage entry refers to."""

    eid: str
    kind: str
    ts: int
    agent_role: str | None
    agent_id: str | None
    source_id: str | None
    decision: str | None
    policy_name: str | None
    session_id: str | None
    ref: str | None


def index_of(entry: dict[str, Any]) -> Index:
    """Of a decoded entry; `LookupError`, `TypeError` or `ValueError` where it is not one."""
    src = entry.get("src")
    return index_at(entry, micros(entry["ts"] if src is None else src["t"]))


def index_at(entry: dict[str, Any], ts: int) -> Index:
    """The same of one whose time is known; it needs no place yet."""
    pub = entry["pub"]
    request, response = pub.get("request", {}), pub.get("response", {})
    event = pub.get("event")
    return Index(
        entry["eid"],
        entry["kind"],
        ts,
        request.get("agent_role"),
        request.get("agent_id"),
        request.get("source_id"),
        response.get("decision"),
        response.get("policy_name"),
        request.get("session_id"),
        None if event is None else event["id"],
    )


def audit_event(entry: dict[str, Any], leaf: bytes, openings: bytes | None) -> dict[str, Any]:
    """An audit event as `service.md` 2.4 and contract section 4 show it, of a `decision` entry.

    `user_id` and `query` are null where their openings were erased. `hash` and `prev_hash` are leaf
    hashes in hex.
    """
    pub, src = entry["pub"], entry.get("src")
    request, response = pub["request"], pub["response"]
    opened = orjson.loads(openings) if openings else {}
    return {
        "event_id": entry["eid"],
        "seq": entry["seq"],
        "timestamp": entry["ts"] if src is None else src["t"],
        "decision": response["decision"],
        "policy_name": response["policy_name"],
        "reason": response["reason"],
        "check": response.get("check"),
        "policy_version": response.get("policy_version"),
        "agent_role": request["agent_role"],
        "agent_id": request.get("agent_id"),
        "user_id": opened["user_id"][1] if "user_id" in opened else None,
        "source_id": request["source_id"],
        "source_type": request["source_type"],
        "sensitivity_level": request["sensitivity_level"],
        "session_id": request.get("session_id"),
        "task_type": request.get("task_type"),
        "query": opened["query"][1] if "query" in opened else None,
        "context_hash": pub["context_hash"],
        "pii_masked": pub.get("masking") is True,
        "sidecar_id": None if src is None else src["id"],
        "hash": leaf.hex(),
        "prev_hash": unb64(entry["prev"]).hex(),
    }


def lineage_action(entry: dict[str, Any], openings: bytes | None) -> dict[str, Any]:
    """A lineage action as `service.md` 2.5 shows it, of a `lineage` entry, and when it was
    recorded. `detail` is null where its opening was erased."""
    pub, src = entry["pub"], entry.get("src")
    detail = pub.get("detail")
    if detail is None and openings:
        opened = orjson.loads(openings)
        detail = orjson.loads(opened["detail"][1]) if "detail" in opened else None
    return {
        "event_id": pub["event"]["id"],
        "action_type": pub["action_type"],
        "detail": detail,
        "outcome": pub.get("outcome"),
        "timestamp": entry["ts"] if src is None else src["t"],
        "seq": entry["seq"],
    }
