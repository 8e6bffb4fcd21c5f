"""The core of an entry, which is the record as a sidecar spooled it: its hash, the marks that the
control API adds beside it, and the entry of a record that was refused.

A refused record keeps its number, and the spool's hash chain goes on behind it. So its entry, of
kind `rejected_record`, has the record's place in the spool as `src`, and the next record's
`src.prev` is the hash of the refused record, not of the entry.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from policies.ground.canonical import NotCanonical, b64, check, encode, unb64
from policies.trail.record import MAX_ENTRY, Record, make_record

PLACE = ("log", "marks", "prev", "seq", "ts")
"""The members that the control API adds to a core to make it an entry."""

TIME_DOUBTFUL = "time_doubtful"
"""The mark of a record whose time is far from its arrival. Its entry is listed and counted by the
time of arrival."""
AGENT_FOREIGN = "agent_foreign"
"""The mark of a denial whose agent the sidecar's key does not act for, such as an impostor's
attempt. It counts for no agent."""
MARKS = frozenset((AGENT_FOREIGN, TIME_DOUBTFUL))

REJECTED = "rejected_record"
"""The `kind` of the entry that takes the place of a refused record."""
_REJECTED = {"core", "hash", "key_id", "reason"}
_HASH = 32
_OVERHEAD = 8192
"""The most bytes that the entry of a refused record needs beside the record's core."""


def core_hash(core: bytes) -> bytes:
    """Return the hash of a record as spooled. The next record of the spool holds it as
    `src.prev`."""
    return hashlib.sha256(b"audit/src/v1\0" + len(core).to_bytes(4, "big") + core).digest()


def record_hash(entry: dict[str, Any]) -> bytes:
    """Return the hash of the record, as it was spooled, that became this entry. The entry must have
    passed `check_entry`."""
    if entry["kind"] == REJECTED:
        return unb64(entry["pub"]["hash"])
    return core_hash(encode({name: entry[name] for name in entry if name not in PLACE}))


def listed_at_arrival(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is listed and counted by the time at which it entered the log (`ts`),
    rather than by the enforcement point's time (`src.t`)."""
    return "src" not in entry or entry["kind"] == REJECTED or TIME_DOUBTFUL in marks_of(entry)


def marks_of(entry: Mapping[str, Any]) -> list[str]:
    """Return the marks that the control API added to the entry, such as `TIME_DOUBTFUL`."""
    marks: list[str] = entry.get("marks", [])
    return marks


def marks_fault(marks: object) -> str | None:
    """Return what is wrong with an entry's member `marks`; None if nothing is."""
    listed: list[Any] = marks if isinstance(marks, list) else []
    known = all(type(mark) is str and mark in MARKS for mark in listed)
    if listed and known and sorted(set(listed)) == listed:
        return None
    return f"`marks` is not an ascending list of {', '.join(sorted(MARKS))}"


def rejected_fault(pub: dict[str, Any]) -> str | None:
    """Return what is wrong with `pub` of a `rejected_record` entry; None if nothing is."""
    if pub.keys() != _REJECTED:
        return "`pub` has other members than core, hash, key_id, reason"
    try:
        hashed = unb64(pub["hash"])
    except (NotCanonical, TypeError, AttributeError):
        hashed = b""
    if len(hashed) != _HASH:
        return "`pub.hash` is not the base64 of a hash"
    if pub["core"] is not None and core_hash(encode(pub["core"])) != hashed:
        return "`pub.hash` is not the hash of `pub.core`"
    return None


def rejected_record(core: dict[str, Any], reason: str, key_id: str, *, record_id: str) -> Record:
    """Return the record that stands for a refused one, which the key `key_id` delivered. `core` is
    the refused record as spooled; if it does not fit into an entry, it is left out, and only its
    hash is kept. Its openings are not kept: nothing shows whose they are."""
    encoded = encode(core)
    pub: dict[str, Any] = {
        "core": core,
        "hash": b64(core_hash(encoded)),
        "key_id": key_id,
        "reason": reason,
    }
    if len(encoded) > MAX_ENTRY - _OVERHEAD or not _nests(pub):
        pub["core"] = None
    return make_record(REJECTED, record_id, encode(pub))


def _nests(pub: dict[str, Any]) -> bool:
    """Return whether an entry can hold `pub` within the limit on nesting: it lies one level deeper
    there."""
    try:
        check([pub])
    except NotCanonical:
        return False
    return True
