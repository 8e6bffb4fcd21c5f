"""A fast path that checks a decision record by its bytes, without decoding it. Our own sidecars
send canonical JSON whose members follow one fixed pattern, here called the known form.

INVARIANT: the fast path only accepts. A record that is not exactly in the known form goes to
`policies.trail.spool_chain.read_payload`, the only place that refuses a record; and a record
accepted here is one that `read_payload` accepts with the same result
(`tests/policies/trail/test_record_fast_path.py`). In the known form, names hold no escapes, numbers
have fewer digits than 2^53, and members have one order.
"""

import re
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from typing import NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, check, encode, micros
from policies.trail.commitment import commitment
from policies.trail.entry import Index
from policies.trail.fields import Type, known_members, known_object, names
from policies.trail.record import MAX_ENTRY
from policies.trail.spool_chain import POSITION, Spooled, core_hash, read_payload

# Printable ASCII without `"` and `\`, so nothing in it is escaped, and a byte is a character.
_NAME = rb"[ !#-\[\]-~]{1,256}"
_TEXT = rb'"[^"\\\x00-\x1f]*(?:\\["\\bfnrt][^"\\\x00-\x1f]*)*"'
_COUNT = rb"(?:0|[1-9][0-9]{0,14})"
# Base64 of 32 bytes: the last of the 43 characters carries four bits, so its low two bits are zero.
_HASH = rb"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
_PAIR = rb'\["%b","%b"\]' % (_NAME, _NAME)


def _group(name: str, pattern: bytes) -> bytes:
    """Return the regular expression of a JSON text whose content matches `pattern` and is captured
    as the group `name`."""
    return b'"(?P<%b>%b)"' % (name.encode(), pattern)


_VALUES = {
    Type.NAME: b'"%b"' % _NAME,
    Type.TEXT: _TEXT,
    Type.UNREAD: _TEXT,
    Type.SOURCE_TYPE: _group("source_type", b"[a-z0-9_-]{1,32}"),
    Type.VERDICT: _group("decision", b"ALLOW|DENY"),
    Type.ANSWER: b'"(?:ALLOW|DENY|ERROR)"',
    Type.COUNT: _COUNT,
    Type.DIGEST: b'"[0-9a-f]{64}"',
    Type.TRUE: b"true",
    "pub.facts": rb"(?=\{)",
    "pub.masking": b"(?P<masking>true)",
    **{
        path: _group(path.rpartition(".")[2], _NAME)
        for path in (
            "pub.request.agent_id", "pub.request.agent_role", "pub.request.session_id",
            "pub.request.source_id", "pub.response.policy_name",
        )
    },
}  # fmt: skip
_CM = {f"cm.{name}": _group(f"{name}_cm", _HASH) for name in names("cm")}
_OPEN = {
    "cm.parameters": rb"\[%b,(?P<parameters_value>%b)\]" % (
        _group("parameters_salt", _HASH), _TEXT,
    ),
    "cm.query": rb"\[%b,(?P<query_value>%b)\]" % (_group("query_salt", _HASH), _TEXT),
    "cm.statement_digest": rb'\[%b,(?P<statement_digest_value>"[0-9a-f]{64}")\]' % (
        _group("statement_digest_salt", _HASH),
    ),
    "cm.user_id": rb'\[%b,(?P<user_value>"(?P<user_id>%b)")\]' % (
        _group("user_salt", _HASH), _NAME,
    ),
}  # fmt: skip
_PUB = tuple(known_members("pub", _VALUES).values())
_BEHIND_FACTS = names("pub").index("facts") + 1

_FRONT = re.compile(
    rb'\{"core":(?P<head>\{"cm":' + known_object("cm", _CM) + rb',"eid":' + _group("eid", _NAME) +
    rb',"kind":"decision"),"masked":(?P<masked>\[(?:' + _PAIR + rb"(?:," + _PAIR +
    rb')*)?\]),"pub":(?=\{)\{' + b"".join(_PUB[:_BEHIND_FACTS])
)  # fmt: skip
_REST = re.compile(
    b"".join(_PUB[_BEHIND_FACTS:]) + rb'\},"src":(?P<src>\{"id":' +
    _group("src_id", _NAME) + rb',"inst":' + _group("inst", _NAME) + rb',"n":(?P<n>' + _COUNT +
    rb'),"prev":"(?:(?P<prev>' + _HASH + rb'))?","t":"(?P<t>[0-9TZ:.-]{27})"\}),"v":1\},"open":' +
    rb"(?P<opened>" + known_object("cm", _OPEN) + rb")\}"
)  # fmt: skip
_NEXT = b',"request":{'
_MASKING = b',"masking":true'
_CACHED_FACTS = 1024
_MAX_FACTS_BYTES = 4096


class RecognisedRecord(NamedTuple):
    """A record that was recognised by its bytes. `raw` is all of them; `front` and `rest` are the
    matches before and after its facts. Its openings are not verified yet."""

    raw: bytes
    front: "re.Match[bytes]"
    rest: "re.Match[bytes]"


def match_record(raw: bytes, at: int = 0) -> RecognisedRecord | None:
    """Recognise the record that begins at offset `at` of these UTF-8 bytes; None if it does not
    have the fixed byte form in which our own sidecars write. The record ends at `rest.end()`."""
    front = _FRONT.match(raw, at)
    if front is None:
        return None
    # The facts vary in form, so search for `_NEXT`, which follows them, and decode them (once: see
    # the cache). If a text within them contains `_NEXT`, the bytes before it are no object, and the
    # slow path reads the record.
    begin = front.end()
    end = raw.find(_NEXT, begin, begin + _MAX_FACTS_BYTES)
    if end < 0:
        return None
    if raw.endswith(_MASKING, begin, end):
        end -= len(_MASKING)
    rest = _REST.match(raw, end)
    if rest is None or not _is_canonical_object(raw[begin:end]):
        return None
    if front["masked"] != b"[]" and rest["masking"] is None:
        return None  # something was masked, but the record does not say so
    return RecognisedRecord(raw[at : rest.end()], front, rest)


@lru_cache(maxsize=_CACHED_FACTS)
def _is_canonical_object(raw: bytes) -> bool:
    """Return whether these bytes are the canonical form of a JSON object that is allowed in `pub`
    of a core. Cached, since an agent sends the same facts again and again."""
    try:
        value = orjson.loads(raw)
        check([[value]])  # nested as deeply as in a core, since the profile limits depth
    except (orjson.JSONDecodeError, NotCanonical):
        return False
    return isinstance(value, dict) and encode(value) == raw


def verified(found: RecognisedRecord) -> Spooled | None:
    """Return the record if it also passes the checks that regular expressions can't make: of its
    time, its size, its position in the spool, and its openings. Otherwise return None."""
    raw, front, rest = found
    head, parameters, query, digest, user, eid, masked = front.groups()
    (_, agent, role, session, source, source_type, decision, policy, src, src_id, inst, n, prev, t,
     opened, parameters_salt, parameters_value, query_salt, query_value, digest_salt, digest_value,
     user_salt, user_value, user_id) = rest.groups()  # fmt: skip
    # Only a spool's first record has no predecessor.
    if (prev is None) != (n == b"0"):
        return None
    if not _opening_matches("user_id", user, user_salt, user_value):
        return None
    if not (
        _opened_where_there("query", query, query_salt, query_value)
        and _opened_where_there("parameters", parameters, parameters_salt, parameters_value)
        and _opened_where_there("statement_digest", digest, digest_salt, digest_value)
    ):
        return None
    try:
        ts = micros(t.decode())
    except NotCanonical:
        return None
    # `raw` is `{"core":` + core + `,"open":` + openings + `}`.
    encoded = raw[8 : -len(opened) - 9]
    if len(encoded) > MAX_ENTRY - POSITION:
        return None
    # The core is head + `,"masked":` + masked + `,"pub":` + pub + `,"src":` + src + `,"v":1}`.
    pub = encoded[len(head) + len(masked) + 17 : -len(src) - 14]
    columns = Index(
        eid.decode(), "decision", ts, role.decode(), None if agent is None else agent.decode(),
        source.decode(), decision.decode(), policy.decode(),
        None if session is None else session.decode(), None,
    )  # fmt: skip
    return Spooled(
        src_id.decode(), inst.decode(), int(n), "" if prev is None else prev.decode(),
        encoded, core_hash(encoded), opened, columns, user_id.decode(), source_type.decode(),
        (head, masked, pub, src),
    )  # fmt: skip


def _opened_where_there(
    path: str, committed: bytes | None, salt: bytes | None, value: bytes | None
) -> bool:
    if committed is None or salt is None or value is None:
        return committed is None and salt is None
    return _opening_matches(path, committed, salt, value)


def _opening_matches(path: str, committed: bytes, salt: bytes, value: bytes) -> bool:
    return b2a_base64(commitment(a2b_base64(salt), path, value), newline=False) == committed


def read(payload: object) -> Spooled:
    """Check one record of a batch, by the fast path if possible: `payload` is a `RecognisedRecord`
    or a decoded payload. Raises `Invalid` if it is not a valid record."""
    if isinstance(payload, RecognisedRecord):
        return verified(payload) or read_payload(orjson.loads(payload.raw))
    return read_payload(payload)


_ENVELOPE = re.compile(
    rb'\{"instance":' + _group("instance", _NAME) + rb',"source":' + _group("source", _NAME) +
    rb',"records":\[(?=\{)'
)  # fmt: skip
_BETWEEN = b',{"core":'
_COMMA = ord(",")
_END = b"]}"


class RecognisedBatch(NamedTuple):
    """The request body by which a shipper delivers records, taken apart. `source` and `instance`
    are the spool's; each item of `records` is an argument for `read`, either a `RecognisedRecord`
    or a decoded payload."""

    source: str
    instance: str
    records: list[object]


def match_batch(body: bytes) -> RecognisedBatch | None:
    """Take a shipper's request body apart; None if it does not have the form that our own sidecars
    send. Then the caller decodes it as a whole."""
    envelope = _ENVELOPE.match(body)
    if envelope is None or not (body.endswith(_END) and _utf8(body)):
        return None
    at, last = envelope.end(), len(body) - len(_END)
    records: list[object] = []
    while True:
        found = match_record(body, at)
        if found is not None:
            records.append(found)
            at = found.rest.end()
        else:
            end = body.find(_BETWEEN, at)
            end = last if end < 0 else end
            value = _decoded(body[at:end])
            if value is None:
                return None
            records.append(value)
            at = end
        if at >= last or body[at] != _COMMA:
            break
        at += 1
    if at != last:
        return None
    return RecognisedBatch(envelope["source"].decode(), envelope["instance"].decode(), records)


def _decoded(piece: bytes) -> object | None:
    """Decode a piece of the list of records; None unless it is exactly one JSON value."""
    try:
        value = orjson.loads(b"[[%b]]" % piece)  # nested as deeply as in the body
    except orjson.JSONDecodeError:
        return None
    one = len(value) == 1 and len(value[0]) == 1
    return value[0][0] if one else None


def _utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
