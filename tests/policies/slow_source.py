"""A slow reference for reading an enforcement point's record: member by member, encoded as a whole.

This is what `policies.trail.spool_chain` and `policies.trail.record_schema` did before they were
made fast. `test_fast_reading.py` compares them with it. Change its texts with theirs, never its
logic.
"""

import hashlib
import hmac
import re
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, identifier_fault
from policies.ground.errors import Invalid
from policies.trail.record import MAX_ENTRY

_MAX_INTEGER = 2**53 - 1
_MAX_DEPTH = 64
_POSITION = 2048
_CORE = {"v", "kind", "eid", "src", "pub", "cm", "masked"}
_SRC = {"id", "inst", "n", "prev", "t"}
_KEY = re.compile(r"[a-z0-9_.:-]+\Z")
_SCALARS = frozenset({str, bool, type(None)})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z\Z")


class Read(NamedTuple):
    """What is stored of a record, and its columns."""

    core: bytes
    hash: bytes
    openings: bytes
    columns: tuple[Any, ...]
    user_id: str | None


def encode(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER)


def check(value: object) -> None:
    """Raise `NotCanonical` where a decoded JSON value lies outside the profile, naming where."""
    _check(value, "$", 0)


def _check(value: object, where: str, depth: int) -> None:
    kind = type(value)
    if kind in _SCALARS:
        return
    if isinstance(value, int):
        if not -_MAX_INTEGER <= value <= _MAX_INTEGER:
            raise NotCanonical(f"`{where}` is an integer beyond 53 bits")
    elif depth > _MAX_DEPTH:
        raise NotCanonical(f"a value is nested more than {_MAX_DEPTH} deep")
    elif isinstance(value, dict):
        for key, member in value.items():
            if not _KEY.match(key):
                raise NotCanonical(f"`{where}` has a key outside `[a-z0-9_.:-]`")
            _check(member, f"{where}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            _check(member, f"{where}[{index}]", depth + 1)
    else:
        raise NotCanonical(
            f"`{where}` is a {kind.__name__}, which the log's encoding does not have"
        )


def micros(text: str) -> int:
    """The reverse of `rfc3339`; any other form raises `NotCanonical`."""
    if not _TIME.match(text):
        raise NotCanonical(f"`{text[:40]}` is not a time of the form YYYY-MM-DDTHH:MM:SS.ffffffZ")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise NotCanonical(f"`{text}` is not a time: {error}") from error
    return (moment - _EPOCH) // timedelta(microseconds=1)


def b64(raw: bytes) -> str:
    """Standard alphabet, with padding."""
    return b2a_base64(raw, newline=False).decode("ascii")


def unb64(text: str) -> bytes:
    """The reverse of `b64`; anything that `b64` would not have written raises `NotCanonical`."""
    try:
        raw = b64decode(text, validate=True)
    except ValueError as error:
        raise NotCanonical(f"not base64: {error}") from error
    if b64(raw) != text:
        raise NotCanonical("not canonical base64")
    return raw


_Judge = Callable[[object], bool]


def _name(value: object) -> bool:
    return identifier_fault(value) is None


def _text(value: object) -> bool:
    return isinstance(value, str)


def _source_type(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[a-z0-9_-]{1,32}", value) is not None


def _count(value: object) -> bool:
    return type(value) is int


def _object(value: object) -> bool:
    return isinstance(value, dict)


def _digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def _verdict(value: object) -> bool:
    return value in ("ALLOW", "DENY")


def _maybe(judge: _Judge) -> _Judge:
    return lambda value: value is None or judge(value)


def _true(value: object) -> bool:
    return value is True


_Rules = tuple[tuple[tuple[str, ...], str, _Judge], ...]


# Where it stands in `pub`, how it is called there, what it must be.
def _candidates(value: object) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= 3:
        return False
    for each in value:
        if not isinstance(each, dict):
            return False
        named = _name(each.get("name")) and _name(each.get("policy_name"))
        if not named or not _count(each.get("revision")):
            return False
        if each.get("decision") not in ("ALLOW", "DENY", "ERROR"):
            return False
        if "check" in each and not _name(each["check"]):
            return False
    return True


_DECISION: _Rules = (
    ((), "candidates", _maybe(_candidates)),
    ((), "context_hash", _text),
    ((), "facts", _object),
    ((), "masking", _maybe(_true)),
    (("request",), "agent_role", _name),
    (("request",), "source_id", _name),
    (("request",), "source_type", _source_type),
    (("request",), "sensitivity_level", _text),
    (("request",), "agent_id", _maybe(_name)),
    (("request",), "session_id", _maybe(_name)),
    (("request",), "task_type", _maybe(_text)),
    (("response",), "decision", _verdict),
    (("response",), "policy_name", _name),
    (("response",), "reason", _text),
    (("response",), "check", _maybe(_text)),
    (("response",), "policy_version", _maybe(_count)),
    (("statement",), "id", _name),
    (("statement",), "fingerprint", _maybe(_name)),
    (("statement",), "look", _maybe(_name)),
)
_LINEAGE: _Rules = (
    ((), "action_type", _text),
    ((), "masking", _maybe(_true)),
    ((), "outcome", _maybe(_text)),
    ((), "detail", _maybe(_object)),
    (("event",), "id", _name),
)
_GAP: _Rules = (((), "reason", _text),)
RULES: dict[str, _Rules] = {
    "decision": _DECISION,
    "lineage": _LINEAGE,
    "gap": _GAP,
    "heartbeat": (),
}
"""The kinds that an enforcement point may send, with the rules of each."""

# Members that `policies.trail.entry.index_of` reads from every kind.
_INDEXED = ("request", "response", "event")
_OPENED: dict[str, _Judge] = {
    "user_id": _name,
    "query": _text,
    "parameters": _text,
    "statement_digest": _digest,
}


def pub_fault(kind: str, pub: dict[str, Any]) -> str | None:
    """What is wrong with `pub` of a record of `kind`, or None."""
    rules = RULES[kind]
    expected = {path[0] for path, _, _ in rules if path}
    for member in _INDEXED:
        if member in pub and member not in expected:
            return f"`pub` of a `{kind}` may not hold `{member}`"
    for path, name, judge in rules:
        if path == ("statement",) and pub.get("statement") is None:
            continue
        place: Any = pub.get(path[0]) if path else pub
        if not isinstance(place, dict) or not judge(place.get(name)):
            return f"`{'.'.join(('pub', *path, name))}` is missing or has the wrong type"
    return None


def masked_fault(masked: object, pub: dict[str, Any]) -> str | None:
    """What is wrong with `masked`, or None."""
    if not isinstance(masked, list):
        return "`masked` must be a list"
    for each in masked:
        if not (isinstance(each, list) and len(each) == 2 and all(map(_name, each))):
            return "`masked` must be a list of `[path, rule]`"
    return "`masked` needs `pub.masking` to be true" if masked and not pub.get("masking") else None


def opening_fault(path: str, value: object) -> str | None:
    """What is wrong with an opened value, or None."""
    if path == "detail":
        return None if _json_object(value) else "`detail` is not the text of a JSON object"
    judge = _OPENED.get(path)
    return None if judge is None or judge(value) else f"`{path}` has the wrong type"


def _json_object(value: object) -> bool:
    try:
        return isinstance(value, str) and isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False


def opening_matches(commitments: Mapping[str, str], path: str, opening: object) -> bool:
    if not (isinstance(opening, list) and len(opening) == 2):
        return False
    salt, value = opening
    if not isinstance(salt, str):
        return False
    try:
        raw, name, encoded = unb64(salt), path.encode(), encode(value)
        label = b"audit/field/v1\0%b%b" % (len(name).to_bytes(4, "big"), name)
        message = label + len(encoded).to_bytes(4, "big") + encoded
        made = hmac.digest(raw, message, "sha256")
        return len(raw) == 32 and b64(made) == commitments.get(path)
    except (ValueError, TypeError):
        return False


def read_payload(payload: object) -> Read:
    if not (isinstance(payload, dict) and payload.keys() == {"core", "open"}):
        raise Invalid("a record must be an object of `core` and `open`")
    core, openings = payload["core"], payload["open"]
    try:
        check(core)
        check(openings)
        _shape(core)
    except NotCanonical as error:
        raise Invalid(f"a record can't be read: {error}") from error
    encoded = encode(core)
    if len(encoded) > MAX_ENTRY - _POSITION:
        raise Invalid(
            f"record `{core['eid']}` has {len(encoded)} bytes; the limit is {MAX_ENTRY - _POSITION}"
        )
    commitments = core["cm"]
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
    pub = core["pub"]
    request, response, event = pub.get("request", {}), pub.get("response", {}), pub.get("event")
    columns = (
        core["eid"],
        core["kind"],
        micros(core["src"]["t"]),
        request.get("agent_role"),
        request.get("agent_id"),
        request.get("source_id"),
        response.get("decision"),
        response.get("policy_name"),
        request.get("session_id"),
        None if event is None else event["id"],
    )
    opened = openings.get("user_id")
    return Read(
        encoded,
        hashlib.sha256(b"audit/src/v1\0" + len(encoded).to_bytes(4, "big") + encoded).digest(),
        encode(openings),
        columns,
        None if opened is None else opened[1],
    )


def _shape(core: Any) -> None:
    if not isinstance(core, dict) or core.keys() != _CORE:
        raise NotCanonical("a core must have just the members v, kind, eid, src, pub, cm, masked")
    src = core["src"]
    if not isinstance(src, dict) or src.keys() != _SRC:
        raise NotCanonical("`src` must have just the members id, inst, n, prev, t")
    for name, text in (("eid", core["eid"]), ("src.id", src["id"]), ("src.inst", src["inst"])):
        fault = identifier_fault(text)
        if fault:
            raise NotCanonical(f"`{name}` {fault}")
    if not (isinstance(src["prev"], str) and isinstance(src["t"], str)):
        raise NotCanonical("`src.prev` and `src.t` must be strings")
    if type(src["n"]) is not int or src["n"] < 0:
        raise NotCanonical("`src.n` must be an integer from 0")
    if (src["prev"] == "") != (src["n"] == 0) or len(unb64(src["prev"])) not in (0, 32):
        raise NotCanonical(
            "`src.prev` must be the previous record's hash, and empty for the first record only"
        )
    micros(src["t"])
    version, kind = core["v"], core["kind"]
    if type(version) is not int or version != 1 or not isinstance(kind, str) or kind not in RULES:
        raise NotCanonical(f"version {version!r:.40} of kind {kind!r:.40} is not supported")
    if not (isinstance(core["pub"], dict) and isinstance(core["cm"], dict)):
        raise NotCanonical("`pub` and `cm` must be objects")
    fault = masked_fault(core["masked"], core["pub"]) or pub_fault(kind, core["pub"])
    if fault:
        raise NotCanonical(fault)


def entry_of(core: bytes, *, log: str, seq: int, prev: str, ts: str) -> bytes:
    """The entry of a record at its position in the log."""
    return encode({**orjson.loads(core), "log": log, "seq": seq, "prev": prev, "ts": ts})
