"""Makes an entry of the log, which is a record at its position: derives its index columns, shows it
to the API, and checks a stored entry by itself (its encoding, its members, and the columns and
openings beside it).

The bytes are the only authority. The columns beside them (`Index`) are derived here, both when an
entry is written and when it is verified, so that verification finds a column that was changed.
Knows nothing of the entries around it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, check, encode, micros, unb64
from policies.trail.commitment import opening_matches
from policies.trail.core import (
    AGENT_FOREIGN,
    REJECTED,
    TIME_DOUBTFUL,
    listed_at_arrival,
    marks_fault,
    marks_of,
    rejected_fault,
)
from policies.trail.fields import (
    COMMITTED,
    FIELDS,
    REQUEST,
    RESPONSE,
    STATEMENT,
    Type,
    members,
    names,
)
from policies.trail.findings import Reason
from policies.trail.record import MAX_ENTRY

_NOTHING: dict[str, Any] = {each.shown: None for each in FIELDS if each.shown}
"""An event of the API with all its members, in order, each None: what a record lacks stays None."""


_Names = tuple[tuple[str, ...], tuple[str, ...]]
"""Two lists of members' names: those that a record always has, and those that it may lack."""


def _shown(parent: str) -> _Names:
    """Return the names of the members of the object at `parent` that an event of the API shows
    under the same name."""
    shown = [each for each in members(parent) if each.shown == each.name]
    return (
        tuple(each.name for each in shown if not each.optional),
        tuple(each.name for each in shown if each.optional),
    )


_REQUEST, _RESPONSE = _shown(REQUEST), _shown(RESPONSE)
_COMMITTED = names(COMMITTED)
_STATEMENT = tuple((each.shown, each.name) for each in members(STATEMENT) if each.shown)
"""The members of a statement: each one's name in an event, and in the record."""


class Index(NamedTuple):
    """The database columns beside an entry's bytes; None if the kind has no such field. `ts` is the
    time of the decision in microseconds since 1970 UTC, by the enforcement point's clock if there
    was one and its time is not doubtful. `ref` is the id of the event that a lineage entry refers
    to."""

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
    """Return the index columns of a decoded entry. Raises `LookupError`, `TypeError` or
    `ValueError` if it is not an entry."""
    return index_at(entry, micros(time_of(entry)))


def time_of(entry: Mapping[str, Any]) -> Any:
    """Return the time by which an entry is listed and counted. It is text, unless the entry is
    damaged."""
    # Prefer the enforcement point's time: the control API may have set `ts` hours later.
    return entry["ts"] if listed_at_arrival(entry) else entry["src"]["t"]


def counted_index(index: Index, ts: int, marks: Sequence[str]) -> Index:
    """Return the index columns by which a decision is counted in statistics. `ts` is when it
    entered the log, in microseconds since 1970 UTC; `marks` are those of its entry."""
    # An event time in the future means that a clock is wrong. Count the event as of now: otherwise
    # it would sit in a bucket of its own until that time comes.
    if index.ts > ts:
        index = index._replace(ts=ts)
    # An impostor's attempt says nothing about the agent that it named.
    return index._replace(agent_id=None) if AGENT_FOREIGN in marks else index


def index_at(entry: dict[str, Any], ts: int) -> Index:
    """Return the index columns like `index_of`, for a time `ts` that the caller knows. So a core,
    which has no `ts` yet, can be indexed too."""
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
    """Return a `decision` entry as an audit event (`CONTRACT.md`, Audit events).

    `user_id`, `query` and `parameters` are null if their openings were erased. `hash` and
    `prev_hash` are leaf hashes in hex.
    """
    pub, src, marks = entry["pub"], entry.get("src"), marks_of(entry)
    opened = orjson.loads(openings) if openings else {}
    event = _NOTHING.copy()
    for name in _COMMITTED:
        if name in opened:
            event[name] = opened[name][1]
    _take(event, pub["response"], _RESPONSE)
    _take(event, pub["request"], _REQUEST)
    statement = pub.get("statement")
    # The control API of 0.1 took any value, since it did not know the member.
    if isinstance(statement, dict):
        for shown, name in _STATEMENT:
            event[shown] = statement.get(name)
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
    """Copy the members in `names` from `held` to `event`, under their own names."""
    required, optional = names
    for name in required:
        event[name] = held[name]
    for name in optional:
        if name in held:
            event[name] = held[name]


def lineage_action(entry: dict[str, Any], openings: bytes | None) -> dict[str, Any]:
    """Return a `lineage` entry as a lineage action of the API (`CONTRACT.md`, Lineage), with the id
    of its event and its `seq`. `detail` is null if its opening was erased."""
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


MARKED = frozenset(names(""))
"""The names of the members of an entry that came from an enforcement point and to which the control
API added marks."""
SOURCED = MARKED - {"marks"}
"""The names of the members of an entry that came from an enforcement point and has no marks."""
MEMBERS = frozenset(names("", optional=False))

_TYPES = (("eid", str), ("kind", str), ("ts", str), ("pub", dict), ("cm", dict), ("masked", list))
_SRC = {each.name: int if each.type is Type.COUNT else str for each in members("src")}
KNOWN = frozenset(
    (
        *(each.name for each in FIELDS if each.path),
        # The members of the documents of a decision's facts.
        *("status", "state", "bound_agent_id", "bound_key_id", "expires_at", "key_id"),
        *("permitted_roles", "scope", "sidecar", "tenant"),
        # The members of other kinds.
        *("event", "core", "leaf", "action_type", "outcome", "detail"),
    )
)
"""Keys that are known to be allowed in an entry. Most entries have no others, so that checking them
needs no regular expression."""


class EntryFinding(Exception):
    """what is wrong with an entry"""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StoredRow(NamedTuple):
    """A stored entry as a verification reads it: its bytes, and the values of the row beside them.
    `hash`, `columns` and `openings` are None if the bytes should not be compared with them, as in a
    stream of bare entries."""

    seq: int
    entry: bytes
    hash: bytes | None = None
    columns: Index | None = None
    openings: bytes | None = None


def load_entry(raw: bytes) -> Any:
    """Decode the bytes of an entry. Raises `EntryFinding` if there are more than `MAX_ENTRY` of
    them, and `ValueError` if they are not JSON."""
    if len(raw) > MAX_ENTRY:
        raise EntryFinding(Reason.TOO_LARGE, f"has {len(raw)} bytes; the limit is {MAX_ENTRY}")
    return orjson.loads(raw)


def check_entry(raw: bytes, entry: Any) -> bool:
    """Check an entry by itself: `raw` are its bytes, `entry` is what `load_entry` made of them.
    Return whether it came from an enforcement point. Raises `EntryFinding`, and `ValueError`,
    `TypeError` or `LookupError` for bytes that are not an entry at all."""
    # Readers may disagree on duplicate keys or escapes, so only the canonical spelling counts as
    # the entry.
    if encode(entry) != raw:
        raise EntryFinding(Reason.NOT_CANONICAL, "the bytes are not in the canonical encoding")
    members = entry.keys() if type(entry) is dict else frozenset()
    sourced = members in (SOURCED, MARKED)
    if not sourced and members != MEMBERS:
        raise EntryFinding(Reason.WRONG_MEMBERS, "has other members than an entry")
    try:
        check(entry, KNOWN)  # no floats, keys of the profile only, 64 levels at most
    except NotCanonical as error:
        raise EntryFinding(Reason.OUTSIDE_PROFILE, str(error)) from error
    for name, kind in _TYPES:
        if type(entry[name]) is not kind:
            raise EntryFinding(Reason.NOT_AN_ENTRY, f"`{name}` has the wrong type")
    micros(entry["ts"])
    if sourced:
        src = entry["src"]
        if type(src) is not dict or {name: type(src[name]) for name in src} != _SRC:
            raise EntryFinding(
                Reason.NOT_AN_ENTRY, "`src` has other members than id, inst, n, prev, t"
            )
        if members == MARKED and (fault := marks_fault(entry["marks"])):
            raise EntryFinding(Reason.NOT_AN_ENTRY, fault)
    if entry["kind"] == REJECTED and (fault := rejected_fault(entry["pub"])):
        raise EntryFinding(Reason.NOT_AN_ENTRY, fault)
    return sourced


def check_beside(row: StoredRow, entry: dict[str, Any], leaf: bytes) -> None:
    """Check that the hash and the columns stored beside an entry agree with its bytes, whose leaf
    hash is `leaf`. Raises `EntryFinding`."""
    if row.hash is not None and row.hash != leaf:
        raise EntryFinding(Reason.HASH_MISMATCH, "the column `hash` is not the hash of the bytes")
    if row.columns is None:
        return
    # Lists and filters read the columns, so a changed column would hide an entry from an auditor.
    derived = index_of(entry)
    if row.columns != derived:
        for name, stored, expected in zip(Index._fields, row.columns, derived, strict=True):
            if stored != expected:
                raise EntryFinding(
                    Reason.COLUMN_MISMATCH,
                    f"the column `{name}` holds {stored!r}, the bytes {expected!r}",
                )


def check_openings(entry: dict[str, Any], raw: bytes) -> str | None:
    """Check that the openings in `raw` match the entry's commitments. Return the path of the first
    commitment without an opening, which only a later `redact` entry excuses; None if each has one.
    Raises `EntryFinding`."""
    openings = orjson.loads(raw)
    commitments = entry["cm"]
    if type(openings) is not dict:
        raise EntryFinding(Reason.OPENING_MISMATCH, "the openings are not an object")
    for path, opening in openings.items():
        if not opening_matches(commitments, path, opening):
            raise EntryFinding(
                Reason.OPENING_MISMATCH,
                f"the opening of `{path:.80}` does not match its commitment",
            )
    return next((path for path in commitments if path not in openings), None)
