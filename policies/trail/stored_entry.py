"""Checks one stored entry by itself: its members, its encoding's profile, and the columns and
openings beside it. Knows nothing of the entries around it.
"""

import re
from typing import Any, NamedTuple

import orjson

from policies.trail.commitment import opens
from policies.trail.entry import Index, index_of
from policies.trail.findings import Reason

MEMBERS = frozenset({"cm", "eid", "kind", "log", "masked", "prev", "pub", "seq", "ts", "v"})
SOURCED = MEMBERS | {"src"}
"""The members of an entry that came from an enforcement point."""

_KEY = re.compile(r"[a-z0-9_.:-]+\Z").match
KNOWN = SOURCED.union(
    ("user_id", "query", "detail", "context_hash", "facts", "request", "response"),
    ("agent_role", "agent_id", "source_id", "source_type", "sensitivity_level", "session_id"),
    ("task_type", "decision", "policy_name", "reason", "check", "policy_id", "policy_version"),
    (
        "agent",
        "frozen_at",
        "key",
        "require_agent_id",
        "revision",
        "role",
        "session",
        "status",
        "state",
    ),
    ("bound_agent_id", "bound_key_id", "expires_at", "key_id", "permitted_roles", "scope"),
    ("id", "inst", "n", "t", "event", "core", "leaf", "action_type", "outcome", "masking"),
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


def check_profile(value: dict[str, Any]) -> None:
    """Check what re-encoding to equal bytes doesn't prove: no floats, and only keys that the
    profile allows. (`encode` refuses integers beyond 53 bits.) Raises `EntryFinding`."""
    # One set operation suffices for nearly every entry; only if it fails is each key checked.
    if not KNOWN.issuperset(value) and not all(map(_KEY, value)):
        raise EntryFinding(Reason.OUTSIDE_PROFILE, "has a key outside `[a-z0-9_.:-]`")
    for member in value.values():
        kind = type(member)
        if kind is str:
            continue
        if kind is dict:
            check_profile(member)
        elif kind is list:
            _check_items(member)
        elif kind is float:
            raise EntryFinding(
                Reason.OUTSIDE_PROFILE,
                f"holds the float {member!r}; the log's encoding has no floats",
            )


def _check_items(items: list[Any]) -> None:
    for item in items:
        if type(item) is not str:  # most items are: roles, labels
            check_profile({"v": item})


def check_columns(row: StoredRow, entry: dict[str, Any]) -> None:
    """Check that the columns and openings agree with the bytes. Raises `EntryFinding`."""
    # Lists and filters read the columns, so a changed column would hide an entry from an auditor.
    derived = index_of(entry)
    if row.columns != derived:
        assert row.columns is not None
        for name, stored, expected in zip(Index._fields, row.columns, derived, strict=True):
            if stored != expected:
                raise EntryFinding(
                    Reason.COLUMN_MISMATCH,
                    f"the column `{name}` holds {stored!r}, the bytes {expected!r}",
                )
    if row.openings is None:
        return
    openings = orjson.loads(row.openings)
    for path in entry["cm"]:
        if path not in openings:
            raise EntryFinding(
                Reason.OPENING_MISSING,
                f"the opening of `{path}` is missing, though no erasure is recorded",
            )
    for path, opening in openings.items():
        if not opens(entry["cm"], path, opening):
            raise EntryFinding(
                Reason.OPENING_MISMATCH, f"the opening of `{path}` does not match its commitment"
            )
