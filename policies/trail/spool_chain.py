"""Numbers the records of one enforcement point, chains them by their hashes, and reads them back:
the hash chain of a spool.

Every record that a sidecar makes carries `src {id, inst, n, prev, t}`. This chain runs beside the
log's own, so that verification detects a record that was dropped, repeated or reordered after it
left the sidecar (`FORMAT.md`, Entry).
"""

from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, check, encode, identifier_fault, micros, unb64
from policies.ground.errors import Invalid
from policies.trail.commitment import opening_matches
from policies.trail.core import PLACE, REJECTED, rejected_record
from policies.trail.core import core_hash as core_hash  # noqa: PLC0414  # for those who read spools
from policies.trail.entry import KNOWN, SOURCED, Index, index_at
from policies.trail.fields import names
from policies.trail.log_file.lines import SEPARATOR
from policies.trail.record import MAX_ENTRY
from policies.trail.record_schema import RULES, is_name, masked_fault, opening_fault, pub_fault

_PAYLOAD = {"core", "open"}
_CORE = SOURCED.difference(PLACE)
_SRC = frozenset(names("src"))
POSITION = 2048
"""The most bytes that `log`, `seq`, `prev` and `ts` add to a core when it becomes an entry."""

KINDS = frozenset(RULES)
"""The kinds of records that an enforcement point may send."""


def src_member(source_id: str, instance: str, n: int, prev: str, t: str) -> bytes:
    """Return the canonical member `src`: the enforcement point's id and instance, the record's
    number `n` in its spool, its predecessor and its time. `prev` is the base64 of the previous
    record's hash, empty for the first record."""
    return encode({"id": source_id, "inst": instance, "n": n, "prev": prev, "t": t})


def spool_payload(core: bytes, openings: bytes) -> bytes:
    """Return one record with its openings, as the spool stores it and the shipper sends it."""
    return b'{"core":%b,"open":%b}' % (core, openings)


class LogPosition(NamedTuple):
    """An entry's position in a log, in canonical bytes. `log` is JSON text; `prev` is the base64 of
    the previous leaf hash, empty for the first entry."""

    log: bytes
    seq: int
    prev: bytes
    ts: bytes


class Spooled(NamedTuple):
    """A record that was read back and verified.

    `source`, `instance`, `n` and `prev` are its position in the enforcement point's chain.
    `encoded` is its core in canonical bytes and `hash` their hash; `openings` are canonical bytes
    too. `columns` and `user_id` index it, and `source_type` counts a decision. `members` are the
    parts from which both the core and the entry are joined: all up to `kind`, then `masked`, `pub`
    and `src`.
    """

    source: str
    instance: str
    n: int
    prev: str
    encoded: bytes
    hash: bytes
    openings: bytes
    columns: Index
    user_id: str | None
    source_type: str | None
    members: tuple[bytes, bytes, bytes, bytes]
    marks: tuple[str, ...] = ()
    """The marks that the control API adds to the entry (`policies.trail.core.MARKS`), in order."""

    @property
    def core(self) -> dict[str, Any]:
        """The record's core as a dict. It is decoded on each call."""
        core: dict[str, Any] = orjson.loads(self.encoded)
        return core

    def entry(self, position: LogPosition) -> bytes:
        """Return the record's entry at a position in the log: the core plus the position and the
        marks, otherwise unchanged. It is canonical, because the members stay in the order of their
        names."""
        head, masked, pub, src = self.members
        log, seq, prev, ts = position
        marks = b',"marks":' + encode(self.marks) if self.marks else b""
        before = b'%b,"log":%b%b,"masked":%b,"prev":"%b","pub":' % (head, log, marks, masked, prev)
        return b'%b%b,"seq":%d,"src":%b,"ts":"%b","v":1}' % (before, pub, seq, src, ts)


def read_payload(payload: object) -> Spooled:
    """Check a decoded `spool_payload`, and return its record. Raises `Invalid` unless encoding,
    size, members and kind are those of an enforcement point's record, and its openings match its
    commitments."""
    if not (isinstance(payload, dict) and payload.keys() == _PAYLOAD):
        raise Invalid("a record must be an object of `core` and `open`")
    core, openings = payload["core"], payload["open"]
    # Check the profile first: it bounds the depth before anything else recurses into the value.
    try:
        check(core, KNOWN)
        check(openings, KNOWN)
        ts = _check_core(core)
    except NotCanonical as error:
        raise Invalid(f"a record can't be read: {error}") from error
    members = _members(core)
    encoded = b'%b,"masked":%b,"pub":%b,"src":%b,"v":1}' % members
    # Refuse it now: once in the log, an entry over the limit would fail every verification.
    if len(encoded) > MAX_ENTRY - POSITION:
        raise Invalid(
            f"record `{core['eid']}` has {len(encoded)} bytes; the limit is {MAX_ENTRY - POSITION}"
        )
    _check_openings(core, openings)
    opened = encode(openings)
    # Refuse it now: no export could tell its openings from its entry, and none would verify.
    if SEPARATOR in opened:
        raise Invalid(f"record `{core['eid']}`: no opening may hold a member `openings`")
    user, src = openings.get("user_id"), core["src"]
    return Spooled(
        src["id"],
        src["inst"],
        src["n"],
        src["prev"],
        encoded,
        core_hash(encoded),
        opened,
        index_at(core, ts),
        None if user is None else user[1],
        core["pub"].get("request", {}).get("source_type"),
        members,
    )


class Place(NamedTuple):
    """A refused record's place in its spool, as far as the record can still be read. `t` is empty
    if the record's is not a time."""

    n: int
    prev: str
    t: str


def read_place(payload: object) -> tuple[dict[str, Any], Place] | None:
    """Return the core of a decoded payload that was refused, and its place in its spool; None if it
    has no place, or could not be encoded again as it was hashed."""
    core: Any = payload.get("core") if isinstance(payload, dict) else None
    src = core.get("src") if isinstance(core, dict) else None
    if not isinstance(src, dict):
        return None
    n, prev, t = src.get("n"), src.get("prev"), src.get("t", "")
    try:
        check(core, KNOWN)
        if type(n) is not int or n < 0 or type(prev) is not str or len(unb64(prev)) not in (0, 32):
            return None
    except NotCanonical:
        return None
    try:
        micros(t)
    except (NotCanonical, TypeError):
        t = ""
    return core, Place(n, prev, t)


def refused(
    core: dict[str, Any], place: Place, spool: tuple[str, str], reason: str, key_id: str, eid: str
) -> Spooled:
    """Return what a refused record becomes in the log: an entry of kind `rejected_record` with the
    id `eid`, at the record's place in the chain of `spool`, which is the source and instance of its
    batch."""
    record = rejected_record(core, reason, key_id, record_id=eid)
    src = src_member(*spool, place.n, place.prev, place.t)
    return Spooled(
        *spool,
        place.n,
        place.prev,
        record.core(src),
        core_hash(encode(core)),
        b"{}",
        # Listed at its arrival, which the log sets.
        Index(eid, REJECTED, 0, None, None, None, None, None, None, None),
        None,
        None,
        (record.head, record.masked, record.pub, src),
    )


def _members(core: dict[str, Any]) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the canonical members that the core and the entry have in common, so that they are
    encoded once for both: all up to `kind`, then `masked`, `pub` and `src`."""
    head = b'{"cm":%b,"eid":%b,"kind":"%b"' % (
        encode(core["cm"]),
        encode(core["eid"]),
        core["kind"].encode(),  # one of `KINDS`
    )
    return head, encode(core["masked"]), encode(core["pub"]), encode(core["src"])


def _check_openings(core: dict[str, Any], openings: Any) -> None:
    commitments = core["cm"]
    # Fewer would be an erasure that was never recorded; more would be stored unproven.
    if not isinstance(openings, dict) or openings.keys() != commitments.keys():
        raise Invalid(f"record `{core['eid']}` must open exactly what it commits to")
    for path, opening in openings.items():
        if not opening_matches(commitments, path, opening):
            raise Invalid(
                f"record `{core['eid']}`: the opening of `{path}` does not match its commitment"
            )
        fault = opening_fault(path, opening[1])
        if fault:
            raise Invalid(f"record `{core['eid']}`: {fault}")


def _check_core(core: Any) -> int:
    """Check a core's members. Return its time, in microseconds since 1970 UTC. Raises
    `NotCanonical`."""
    if not isinstance(core, dict) or core.keys() != _CORE:
        raise NotCanonical("a core must have just the members v, kind, eid, src, pub, cm, masked")
    src = core["src"]
    if not isinstance(src, dict) or src.keys() != _SRC:
        raise NotCanonical("`src` must have just the members id, inst, n, prev, t")
    for name, value in (("eid", core["eid"]), ("src.id", src["id"]), ("src.inst", src["inst"])):
        if not is_name(value):
            raise NotCanonical(f"`{name}` {identifier_fault(value)}")
    if not (isinstance(src["prev"], str) and isinstance(src["t"], str)):
        raise NotCanonical("`src.prev` and `src.t` must be strings")
    if type(src["n"]) is not int or src["n"] < 0:
        raise NotCanonical("`src.n` must be an integer from 0")
    if (src["prev"] == "") != (src["n"] == 0) or len(unb64(src["prev"])) not in (0, 32):
        raise NotCanonical(
            "`src.prev` must be the previous record's hash, and empty for the first record only"
        )
    ts = micros(src["t"])
    version, kind = core["v"], core["kind"]
    # Check the type too: `True == 1`, but the two are encoded differently.
    if type(version) is not int or version != 1 or not isinstance(kind, str) or kind not in KINDS:
        raise NotCanonical(f"version {version!r:.40} of kind {kind!r:.40} is not supported")
    if not (isinstance(core["pub"], dict) and isinstance(core["cm"], dict)):
        raise NotCanonical("`pub` and `cm` must be objects")
    fault = masked_fault(core["masked"], core["pub"]) or pub_fault(kind, core["pub"])
    if fault:
        raise NotCanonical(fault)
    return ts
