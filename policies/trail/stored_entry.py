"""Checks one stored entry by itself: its encoding, its members, and the columns and openings beside
it. Knows nothing of the entries around it.
"""

from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, check, encode, micros
from policies.trail.commitment import opens
from policies.trail.core import REJECTED, marks_fault, rejected_fault
from policies.trail.entry import Index, index_of
from policies.trail.fields import FIELDS, Type, members, names
from policies.trail.findings import Reason
from policies.trail.record import MAX_ENTRY

MARKED = frozenset(names(""))
"""The members of an entry to which the control API added marks."""
SOURCED = MARKED - {"marks"}
"""Those of another that came from an enforcement point."""
MEMBERS = frozenset(names("", optional=False))

_TYPES = (("eid", str), ("kind", str), ("ts", str), ("pub", dict), ("cm", dict), ("masked", list))
_SRC = {each.name: int if each.type is Type.COUNT else str for each in members("src")}
KNOWN = frozenset(
    (
        *(each.name for each in FIELDS if each.path),
        # What stands in the documents of a decision's facts.
        *("status", "state", "bound_agent_id", "bound_key_id", "expires_at", "key_id"),
        *("permitted_roles", "scope", "sidecar", "tenant"),
        # What other kinds have.
        *("event", "core", "leaf", "action_type", "outcome", "detail"),
    )
)
"""Keys that are known to be within the profile. Most entries have no others, and skip the regular
expression."""


class EntryFinding(Exception):
    """what is wrong with an entry"""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StoredRow(NamedTuple):
    """A stored entry: its bytes, and what the row holds beside them. `hash`, `columns` and
    `openings` are None if the bytes should not be compared with them (in a stream of bare
    entries)."""

    seq: int
    entry: bytes
    hash: bytes | None = None
    columns: Index | None = None
    openings: bytes | None = None


def load_entry(raw: bytes) -> Any:
    """What the bytes say. Raises `EntryFinding` if they are too many to be read, and `ValueError`
    if they are not JSON."""
    if len(raw) > MAX_ENTRY:
        raise EntryFinding(Reason.TOO_LARGE, f"has {len(raw)} bytes; the limit is {MAX_ENTRY}")
    return orjson.loads(raw)


def check_entry(raw: bytes, entry: Any) -> bool:
    """Check `raw`, which `load_entry` read as `entry`, by itself. Returns whether it came from an
    enforcement point. Raises `EntryFinding`, and `ValueError`, `TypeError` or `LookupError` for
    bytes that are not an entry at all."""
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
    """Check that the hash and the columns beside an entry agree with its bytes, whose leaf hash is
    `leaf`. Raises `EntryFinding`."""
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
    """Check that the openings match the commitments. Returns the first path without an opening,
    None if each has one: only a `redact` entry excuses a missing one. Raises `EntryFinding`."""
    openings = orjson.loads(raw)
    commitments = entry["cm"]
    if type(openings) is not dict:
        raise EntryFinding(Reason.OPENING_MISMATCH, "the openings are not an object")
    for path, opening in openings.items():
        if not opens(commitments, path, opening):
            raise EntryFinding(
                Reason.OPENING_MISMATCH,
                f"the opening of `{path:.80}` does not match its commitment",
            )
    return next((path for path in commitments if path not in openings), None)
