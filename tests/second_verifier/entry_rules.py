"""What one entry must be, and how it must follow the entry before it: sections "The entry" and
"What a verification can find" of the format document, check by check in their order."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from tests.second_verifier import encoding
from tests.second_verifier.findings import Broken
from tests.second_verifier.notes import hash_of

LARGEST = 64 * 1024
MEMBERS = {"v", "log", "seq", "prev", "ts", "kind", "eid", "pub", "cm", "masked"}
PLACE = ("log", "seq", "prev", "ts", "marks")
MARKS = {"agent_foreign", "time_doubtful"}
REJECTED = {"core", "hash", "key_id", "reason"}
SOURCE = {"id", "inst", "n", "prev", "t"}

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z", re.ASCII)


@dataclass(slots=True)
class Place:
    """Where the walk is: what the next entry must continue."""

    log: str
    seq: int
    prev: bytes | None
    """The leaf hash before; None if it isn't known, at the start of a part."""

    ts: str = ""
    whole: bool = True
    """Whether the walk began at entry 0, so every source must start with its first record."""

    sources: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)


def read_entry(raw: bytes, seq: int) -> dict[str, Any]:
    """The entry that the bytes are. Raises `Broken`."""
    if len(raw) > LARGEST:
        raise Broken("too_large", f"{len(raw)} bytes", seq)
    try:
        value = encoding.read(raw)
        again = encoding.write(value)
    except encoding.Unreadable as error:
        raise Broken("not_an_entry", str(error), seq) from error
    if again != raw:
        raise Broken("not_canonical", "other bytes than its encoding", seq)
    optional = {"src", "marks"} if isinstance(value, dict) and "src" in value else set[str]()
    if not isinstance(value, dict) or set(value) - optional != MEMBERS:
        raise Broken("wrong_members", "other members than an entry has", seq)
    if not encoding.within_profile(value):
        raise Broken("outside_profile", "a float, or a key that is not allowed", seq)
    if not _has_types(value):
        raise Broken("not_an_entry", "a member is of another type", seq)
    return value


def follow(place: Place, entry: dict[str, Any]) -> None:
    """Checks that the entry continues the log. Raises `Broken`."""
    seq = place.seq
    if type(entry["seq"]) is not int or entry["seq"] != seq:
        later = type(entry["seq"]) is int and entry["seq"] > seq
        reason = "entries_missing" if later else "wrong_seq"
        raise Broken(reason, f"says seq {entry['seq']}", seq)
    if type(entry["v"]) is not int or entry["v"] != 1 or entry["log"] != place.log:
        raise Broken("wrong_log", "another log or version", seq)
    expected = _base64(place.prev) if place.prev is not None else entry["prev"]
    if entry["prev"] != expected or (seq > 0 and hash_of(expected) is None):
        raise Broken("chain_broken", "prev is not the hash of the entry before", seq)
    if entry["ts"] < place.ts:
        raise Broken("time_reversed", "time before that of the entry before", seq)
    if "src" in entry:
        _follow_source(place, entry)


def _has_types(value: dict[str, Any]) -> bool:
    return (
        all(isinstance(value[name], str) for name in ("prev", "kind", "eid"))
        and all(isinstance(value[name], dict) for name in ("pub", "cm"))
        and isinstance(value["masked"], list)
        and is_time(value["ts"])
        and ("src" not in value or _is_source(value["src"]))
        and ("marks" not in value or _are_marks(value["marks"]))
        and (value["kind"] != "rejected_record" or _is_rejected(value["pub"]))
    )


def is_time(value: Any) -> bool:
    """Whether the value is a time as entries have it."""
    if not isinstance(value, str) or not _TIME.match(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_source(src: Any) -> bool:
    return (
        isinstance(src, dict)
        and set(src) == SOURCE
        and all(isinstance(src[name], str) for name in ("id", "inst", "prev", "t"))
        and type(src["n"]) is int
    )


def _are_marks(marks: Any) -> bool:
    if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
        return False
    return bool(marks) and set(marks) <= MARKS and sorted(set(marks)) == marks


def _is_rejected(pub: dict[str, Any]) -> bool:
    if set(pub) != REJECTED or not isinstance(pub["hash"], str) or hash_of(pub["hash"]) is None:
        return False
    return pub["core"] is None or hash_of_core(pub["core"]) == pub["hash"]


def _follow_source(place: Place, entry: dict[str, Any]) -> None:
    src = entry["src"]
    key, n = (src["id"], src["inst"]), src["n"]
    before = place.sources.get(key)
    if before is None and (place.whole or n <= 0):
        before = (-1, "")
    if before is not None:
        if n != before[0] + 1:
            raise Broken("source_gap", f"record {n} of {key} follows {before[0]}", place.seq)
        if src["prev"] != before[1]:
            raise Broken("source_chain_broken", f"record {n} of {key}", place.seq)
    place.sources[key] = (n, core_hash(entry))


def core_hash(entry: dict[str, Any]) -> str:
    """The hash of the record that became the entry, in base64."""
    if entry.get("kind") == "rejected_record":
        return str(entry["pub"]["hash"])
    return hash_of_core({name: entry[name] for name in entry if name not in PLACE})


def hash_of_core(value: Any) -> str:
    """The hash of a record as its sidecar spooled it, in base64."""
    core = encoding.write(value)
    return _base64(sha256(b"audit/src/v1\0" + len(core).to_bytes(4, "big") + core).digest())


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()
