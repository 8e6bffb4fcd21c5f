"""One stored entry held against itself: its members, its encoding's profile, the columns and the
openings beside it. Knows nothing of the entries around it.
"""

import re
from typing import Any, NamedTuple

import orjson

from policies.trail.commitment import opens
from policies.trail.entry import Index, index_of

MEMBERS = frozenset({"cm", "eid", "kind", "log", "masked", "prev", "pub", "seq", "ts", "v"})
SOURCED = MEMBERS | {"src"}
"""Of an entry that came from an enforcement point."""

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
"""Keys that are known to be within the profile: most entries have no other."""


class EntryFinding(Exception):
    """What is wrong with an entry."""


class StoredRow(NamedTuple):
    """A stored entry: its bytes, and what stands beside them. `hash`, `columns` and `openings` are
    None where they are not to be held against the bytes (a stream of bare entries)."""

    seq: int
    entry: bytes
    hash: bytes | None = None
    columns: Index | None = None
    openings: bytes | None = None


def profile(value: dict[str, Any]) -> None:
    """The encoding's profile, as far as equal re-encoding does not show it: no floats, and keys as
    they must be. (`encode` refuses integers beyond 53 bits.)"""
    if not KNOWN.issuperset(value) and not all(map(_KEY, value)):
        raise EntryFinding("has a key outside `[a-z0-9_.:-]`")
    for member in value.values():
        kind = type(member)
        if kind is str:
            continue
        if kind is dict:
            profile(member)
        elif kind is list:
            _items(member)
        elif kind is float:
            raise EntryFinding(f"holds the float {member!r}, which the log's encoding has not")


def _items(items: list[Any]) -> None:
    for item in items:
        if type(item) is not str:
            profile({"v": item})


def columns(row: StoredRow, entry: dict[str, Any]) -> None:
    """The columns and openings beside the bytes say what the bytes say, or `EntryFinding`."""
    derived = index_of(entry)
    if row.columns != derived:
        assert row.columns is not None
        for name, stored, meant in zip(Index._fields, row.columns, derived, strict=True):
            if stored != meant:
                raise EntryFinding(f"the column `{name}` says {stored!r}, the bytes {meant!r}")
    if row.openings is None:
        return
    openings = orjson.loads(row.openings)
    for path in entry["cm"]:
        if path not in openings:
            raise EntryFinding(
                f"the opening of `{path}` is missing, and nothing says it was erased"
            )
    for path, opening in openings.items():
        if not opens(entry["cm"], path, opening):
            raise EntryFinding(f"the opening of `{path}` does not open its commitment")
