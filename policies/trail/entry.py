"""An entry of the log: a record at its position. Derives its index columns, and shows it to the
API.

The bytes are the only authority. The columns beside them (`Index`) are derived here, both when an
entry is written and when it is verified, so that verification finds a column that was changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import micros, unb64
from policies.trail.core import AGENT_FOREIGN, TIME_DOUBTFUL, at_arrival, marks_of
from policies.trail.fields import COMMITTED, FIELDS, REQUEST, RESPONSE, members, names

_NOTHING: dict[str, Any] = {each.shown: None for each in FIELDS if each.shown}
"""The members of an event, in order: a record lacks some."""


_Names = tuple[tuple[str, ...], tuple[str, ...]]
"""Members that a record always has, and those that it may lack."""


def _shown(parent: str) -> _Names:
    """The members of the object at `parent` that an event shows under their own names."""
    shown = [each for each in members(parent) if each.shown == each.name]
    return (
        tuple(each.name for each in shown if not each.optional),
        tuple(each.name for each in shown if each.optional),
    )


_REQUEST, _RESPONSE = _shown(REQUEST), _shown(RESPONSE)
_COMMITTED = names(COMMITTED)


class Index(NamedTuple):
    """The columns beside an entry's bytes; None if the kind has no such field. `ts` is the time of
    the decision in microseconds since 1970 UTC, by the enforcement point's clock if there was one,
    and unless that is doubtful.
    `ref` is the event that a lineage entry refers to."""

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
    """The columns of a decoded entry. Raises `LookupError`, `TypeError` or `ValueError` if it is
    not an entry."""
    return index_at(entry, micros(time_of(entry)))


def time_of(entry: Mapping[str, Any]) -> Any:
    """The time at which an entry is listed and counted: text, unless the entry is damaged."""
    # Prefer the enforcement point's time: the control API may have set `ts` hours later.
    return entry["ts"] if at_arrival(entry) else entry["src"]["t"]


def counted_index(index: Index, ts: int, marks: Sequence[str]) -> Index:
    """The columns by which a decision is counted that was recorded at `ts`, in microseconds."""
    # An event time in the future means that a clock is wrong. Count the event as of now: otherwise
    # it would sit in a bucket of its own until that time comes.
    if index.ts > ts:
        index = index._replace(ts=ts)
    # What an impostor tried says nothing of the agent that it named.
    return index._replace(agent_id=None) if AGENT_FOREIGN in marks else index


def index_at(entry: dict[str, Any], ts: int) -> Index:
    """Like `index_of`, for a known time, so that a core without `ts` can be indexed too."""
    pub = entry["pub"]
    # Only a decision has `request` and `response`; a lineage record has `event` instead.
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
    """A `decision` entry as an audit event (`CONTRACT.md`, Audit events).

    `user_id` and `query` are null if their openings were erased. `hash` and `prev_hash` are leaf
    hashes in hex.
    """
    pub, src, marks = entry["pub"], entry.get("src"), marks_of(entry)
    opened = orjson.loads(openings) if openings else {}
    event = _NOTHING.copy()
    for name in _COMMITTED:
        if name in opened:
            event[name] = opened[name][1]
    _take(event, pub["response"], _RESPONSE)
    _take(event, pub["request"], _REQUEST)
    event["event_id"] = entry["eid"]
    event["seq"] = entry["seq"]
    event["timestamp"] = time_of(entry)
    event["time_doubtful"] = TIME_DOUBTFUL in marks
    event["agent_foreign"] = AGENT_FOREIGN in marks
    event["context_hash"] = pub["context_hash"]
    event["pii_masked"] = pub.get("masking") is True
    if src is not None:
        event["sidecar_id"] = src["id"]
    event["hash"] = leaf.hex()
    event["prev_hash"] = unb64(entry["prev"]).hex()
    return event


def _take(event: dict[str, Any], held: dict[str, Any], names: _Names) -> None:
    """Show members of an object under their own names."""
    required, optional = names
    for name in required:
        event[name] = held[name]
    for name in optional:
        if name in held:
            event[name] = held[name]


def lineage_action(entry: dict[str, Any], openings: bytes | None) -> dict[str, Any]:
    """A `lineage` entry as a lineage action (`CONTRACT.md`, Lineage), with its event and `seq`.
    `detail` is null if its opening was erased."""
    pub = entry["pub"]
    # A sidecar's own detail is in clear; a caller's is only committed to.
    detail = pub.get("detail")
    if detail is None and openings:
        opened = orjson.loads(openings)
        detail = orjson.loads(opened["detail"][1]) if "detail" in opened else None
    return {
        "event_id": pub["event"]["id"],
        "action_type": pub["action_type"],
        "detail": detail,
        "outcome": pub.get("outcome"),
        "timestamp": time_of(entry),
        "seq": entry["seq"],
    }
