"""The chain of one enforcement point: how its records are numbered, chained, spooled and read back.

`src {id, inst, n, prev, t}` stands in every record that a sidecar makes. Its own chain runs beside
the log's, so that a record dropped, repeated or reordered behind the sidecar shows
(`audit-trail.md`, Entry).
"""

import hashlib
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, check, encode, micros, unb64
from policies.ground.errors import Invalid
from policies.ground.json_body import identifier_fault
from policies.trail.commitment import opens
from policies.trail.entry import Index, index_at
from policies.trail.record import MAX_ENTRY
from policies.trail.record_schema import RULES, is_name, masked_fault, opening_fault, pub_fault
from policies.trail.stored_entry import KNOWN

_PAYLOAD = {"core", "open"}
_CORE = {"v", "kind", "eid", "src", "pub", "cm", "masked"}
_SRC = {"id", "inst", "n", "prev", "t"}
PLACE = 2048  # the most that log, seq, prev and ts add to a core

KINDS = frozenset(RULES)
"""What an enforcement point may send."""


def src_member(source_id: str, instance: str, n: int, prev: str, t: str) -> bytes:
    """Canonical `src`. `prev` is the base64 of the previous record's hash, empty for the first."""
    return encode({"id": source_id, "inst": instance, "n": n, "prev": prev, "t": t})


def core_hash(core: bytes) -> bytes:
    """What the next record's `src.prev` cites."""
    return hashlib.sha256(b"audit/src/v1\0" + len(core).to_bytes(4, "big") + core).digest()


def spool_payload(core: bytes, openings: bytes) -> bytes:
    """One record as it lies in the spool and goes over the wire."""
    return b'{"core":%b,"open":%b}' % (core, openings)


class LogPosition(NamedTuple):
    """Where in a log an entry stands. `log` as JSON text; `prev` is the base64 of the previous leaf
    hash, empty for the first."""

    log: bytes
    seq: int
    prev: bytes
    ts: bytes


class Spooled(NamedTuple):
    """A record read back: whose, the canonical bytes of its core, that core's hash, its openings as
    canonical bytes. `columns` and `user_id` are what it is found by, `source_type` what a decision
    is counted by; of `members` (up to `kind`, then `masked`, `pub` and `src`) the core's bytes are
    made, and the entry's."""

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

    @property
    def core(self) -> dict[str, Any]:
        """Decoded anew."""
        core: dict[str, Any] = orjson.loads(self.encoded)
        return core

    def entry(self, place: LogPosition) -> bytes:
        """Its core with `log`, `prev`, `seq` and `ts`, and nothing changed: canonical as the core
        is, since they stand in the order of their names."""
        head, masked, pub, src = self.members
        log, seq, prev, ts = place
        before = b'%b,"log":%b,"masked":%b,"prev":"%b","pub":' % (head, log, masked, prev)
        return b'%b%b,"seq":%d,"src":%b,"ts":"%b","v":1}' % (before, pub, seq, src, ts)


def read_payload(payload: object) -> Spooled:
    """The reverse of `spool_payload`, decoded. `Invalid` where it is no record of an enforcement
    point: encoding, size, members, kinds, and openings that don't open their commitments."""
    if not (isinstance(payload, dict) and payload.keys() == _PAYLOAD):
        raise Invalid("a record must be an object of `core` and `open`")
    core, openings = payload["core"], payload["open"]
    try:
        check(core, KNOWN)
        check(openings, KNOWN)
        ts = _shape(core)
    except NotCanonical as error:
        raise Invalid(f"a record can't be read: {error}") from error
    members = _members(core)
    encoded = b'%b,"masked":%b,"pub":%b,"src":%b,"v":1}' % members
    # An entry beyond the limit would be a finding of every verification from then on.
    if len(encoded) > MAX_ENTRY - PLACE:
        raise Invalid(f"record `{core['eid']}` has more than {MAX_ENTRY - PLACE} bytes")
    _open(core, openings)
    user, src = openings.get("user_id"), core["src"]
    return Spooled(
        src["id"],
        src["inst"],
        src["n"],
        src["prev"],
        encoded,
        core_hash(encoded),
        encode(openings),
        index_at(core, ts),
        None if user is None else user[1],
        core["pub"].get("request", {}).get("source_type"),
        members,
    )


def _members(core: dict[str, Any]) -> tuple[bytes, bytes, bytes, bytes]:
    """Canonical, to be joined by a core and by an entry: what they share is encoded once."""
    head = b'{"cm":%b,"eid":%b,"kind":"%b"' % (
        encode(core["cm"]),
        encode(core["eid"]),
        core["kind"].encode(),  # one of `KINDS`
    )
    return head, encode(core["masked"]), encode(core["pub"]), encode(core["src"])


def _open(core: dict[str, Any], openings: Any) -> None:
    commitments = core["cm"]
    if not isinstance(openings, dict) or openings.keys() != commitments.keys():
        raise Invalid(f"record `{core['eid']}` must open exactly what it commits to")
    for path, opening in openings.items():
        if not opens(commitments, path, opening):
            raise Invalid(f"record `{core['eid']}`: the opening of `{path}` does not open it")
        fault = opening_fault(path, opening[1])
        if fault:
            raise Invalid(f"record `{core['eid']}`: {fault}")


def _shape(core: Any) -> int:
    """Its time, in microseconds."""
    if not isinstance(core, dict) or core.keys() != _CORE:
        raise NotCanonical("a core has exactly the members v, kind, eid, src, pub, cm, masked")
    src = core["src"]
    if not isinstance(src, dict) or src.keys() != _SRC:
        raise NotCanonical("`src` has exactly the members id, inst, n, prev, t")
    if not (is_name(core["eid"]) and is_name(src["id"]) and is_name(src["inst"])):
        _complain((("eid", core["eid"]), ("src.id", src["id"]), ("src.inst", src["inst"])))
    if not (isinstance(src["prev"], str) and isinstance(src["t"], str)):
        raise NotCanonical("`src.prev` and `src.t` are strings")
    if type(src["n"]) is not int or src["n"] < 0:
        raise NotCanonical("`src.n` counts from 0")
    if (src["prev"] == "") != (src["n"] == 0) or len(unb64(src["prev"])) not in (0, 32):
        raise NotCanonical("`src.prev` is the previous record's hash, empty for the first alone")
    ts = micros(src["t"])
    version, kind = core["v"], core["kind"]
    if type(version) is not int or version != 1 or not isinstance(kind, str) or kind not in KINDS:
        raise NotCanonical(f"version {version!r:.40} of kind {kind!r:.40} is unknown here")
    if not (isinstance(core["pub"], dict) and isinstance(core["cm"], dict)):
        raise NotCanonical("`pub` and `cm` are objects")
    fault = masked_fault(core["masked"], core["pub"]) or pub_fault(kind, core["pub"])
    if fault:
        raise NotCanonical(fault)
    return ts


def _complain(names: tuple[tuple[str, object], ...]) -> None:
    for name, text in names:
        fault = identifier_fault(text)
        if fault:
            raise NotCanonical(f"`{name}` {fault}")
