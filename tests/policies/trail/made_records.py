"""Records of decisions that are made from the table of fields, with or without what is optional."""

from typing import Any

import orjson

from policies.ground.canonical import b64, encode
from policies.trail.commitment import commit
from policies.trail.fields import COMMITTED, FIELDS, Field, Type, members
from policies.trail.spool_chain import LogPosition, read_payload
from tests.policies.world import salt

OPTIONAL = [each.path for each in FIELDS if each.optional and each.path not in ("marks", "src")]
"""What a sidecar's record may lack."""
_HASH = b64(bytes(range(32)))
_VALUES: dict[Type, Any] = {
    Type.NAME: "a name",
    Type.TEXT: 'a "text"\n\\ü',
    Type.UNREAD: "pol_1",
    Type.SOURCE_TYPE: "api",
    Type.VERDICT: "DENY",
    Type.ANSWER: "ERROR",
    Type.COUNT: 7,
    Type.TRUE: True,
    Type.FLAG: False,
    Type.TIME: "2026-01-01T00:00:00.000000Z",
    Type.HASH: _HASH,
    Type.DIGEST: "ab" * 32,
    Type.PAIRS: [],
}
_FIXED = {"v": 1, "kind": "decision"}
_PLACE = ("log", "marks", "prev", "seq", "ts")


def core(without: str = "") -> tuple[dict[str, Any], bytes]:
    """The core of a sidecar's record with every field but the one at this path, and the openings of
    its commitments."""
    made: dict[str, Any] = _object("", without)
    committed = {each.name: _value(each, "") for each in members(COMMITTED) if each.path != without}
    cm, openings = commit(salt(0), committed)
    return {**made, "cm": orjson.loads(cm)}, openings


def payload(without: str = "") -> bytes:
    """The record as a sidecar ships it."""
    made, openings = core(without)
    return b'{"core":%b,"open":%b}' % (encode(made), openings)


def line(without: str = "") -> bytes:
    """The record's line in an export."""
    read = read_payload(orjson.loads(payload(without)))
    position = LogPosition(b'"default"', 5, _HASH.encode(), b"2026-01-01T00:00:01.000000Z")
    return b'{"entry":%b,"openings":%b}' % (read.entry(position), read.openings)


def _object(parent: str, without: str) -> dict[str, Any]:
    return {
        each.name: _FIXED.get(each.path, _value(each, without))
        for each in members(parent)
        if each.path != without and each.path not in _PLACE
    }


def _value(field: Field, without: str) -> Any:
    if field.type is Type.OBJECT:
        return _object(field.path, without)
    if field.type is Type.ITEMS:
        return [_object(f"{field.path}[]", without)] * 2
    return _VALUES[field.type]
