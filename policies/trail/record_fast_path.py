"""Records of decisions told by their bytes: what our own sidecars send is canonical to the byte and
needs no decoding to be judged.

INVARIANT: this says yes, or nothing. Whatever is not plainly the one form is left to
`policies.trail.spool_chain.read_payload`, which alone says no; and of what is told here, it would
have said
yes and kept the same (`tests/policies/test_known_record.py`). Strings of the form hold no escape
where a name is meant, numbers fewer digits than 2^53, objects their members in the one order.
"""

import re
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from typing import NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, check, encode, micros
from policies.trail.commitment import commitment
from policies.trail.entry import Index
from policies.trail.record import MAX_ENTRY
from policies.trail.spool_chain import PLACE, Spooled, core_hash, read_payload

_NAME = rb"([ !#-\[\]-~]{1,256})"
_TEXT = rb'"[^"\\\x00-\x1f]*(?:\\["\\bfnrt][^"\\\x00-\x1f]*)*"'
_COUNT = rb"(?:0|[1-9][0-9]{0,14})"
# Of 32 bytes: the last of the 43 characters carries four bits, and the rest of it is zero.
_HASH = rb"([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)"
_PAIR = rb'\["[ !#-\[\]-~]{1,256}","[ !#-\[\]-~]{1,256}"\]'

_FRONT = re.compile(
    rb'\{"core":(\{"cm":\{(?:"query":"' + _HASH + rb'",)?"user_id":"' + _HASH + rb'"\},'
    rb'"eid":"' + _NAME + rb'","kind":"decision"),"masked":(\[(?:' + _PAIR + rb"(?:," + _PAIR +
    rb')*)?\]),"pub":(?=\{)\{"context_hash":' + _TEXT + rb',"facts":(?=\{)'
)  # fmt: skip
_REST = re.compile(
    rb'(,"masking":true)?,"request":\{(?:"agent_id":"' + _NAME + rb'",)?"agent_role":"' + _NAME +
    rb'","sensitivity_level":' + _TEXT + rb'(?:,"session_id":"' + _NAME + rb'")?,"source_id":"' +
    _NAME + rb'","source_type":"([a-z0-9_-]{1,32})"(?:,"task_type":' + _TEXT + rb')?\},'
    rb'"response":\{(?:"check":' + _TEXT + rb',)?"decision":"(ALLOW|DENY)",(?:"policy_id":' +
    _TEXT + rb',)?"policy_name":"' + _NAME + rb'",(?:"policy_version":' + _COUNT +
    rb',)?"reason":' + _TEXT + rb'\}\},"src":(\{"id":"' + _NAME + rb'","inst":"' + _NAME +
    rb'","n":(' + _COUNT + rb'),"prev":"(?:' + _HASH + rb')?","t":"([0-9TZ:.-]{27})"\}),"v":1\},'
    rb'"open":(\{(?:"query":\["' + _HASH + rb'",(' + _TEXT + rb')\],)?"user_id":\["' + _HASH +
    rb'",("' + _NAME + rb'")\]\})\}'
)  # fmt: skip
_NEXT = b',"request":{'
_MASKING = b',"masking":true'
_KEPT = 1024
_LONGEST = 4096


class KnownRecord(NamedTuple):
    """A record that has the form; `raw` is all of it. Whether its openings open is still open."""

    raw: bytes
    front: "re.Match[bytes]"
    rest: "re.Match[bytes]"


def known(raw: bytes, at: int = 0) -> KnownRecord | None:
    """The record that begins at `at` in UTF-8 bytes, if it has the form; where it ends is
    `rest.end()`."""
    front = _FRONT.match(raw, at)
    if front is None:
        return None
    begin = front.end()
    end = raw.find(_NEXT, begin, begin + _LONGEST)
    if end < 0:
        return None
    if raw.endswith(_MASKING, begin, end):
        end -= len(_MASKING)
    rest = _REST.match(raw, end)
    if rest is None or not _object(raw[begin:end]):
        return None
    if front[5] != b"[]" and rest[1] is None:
        return None  # masked, and does not say so
    return KnownRecord(raw[at : rest.end()], front, rest)


@lru_cache(maxsize=_KEPT)
def _object(raw: bytes) -> bool:
    """Whether these are the canonical bytes of an object within the profile, as a member of `pub`
    in a core. An agent's facts are the same again and again."""
    try:
        value = orjson.loads(raw)
        check([[value]])  # as deep as it stands in a core
    except (orjson.JSONDecodeError, NotCanonical):
        return False
    return isinstance(value, dict) and encode(value) == raw


def judged(found: KnownRecord) -> Spooled | None:
    """The record, if all that its bytes do not show holds: its time, size, place in its spool, and
    that its openings open its commitments."""
    raw, front, rest = found
    head, query, user, eid, masked = front.groups()
    (_, agent, role, session, source, kind, decision, policy, src, src_id, inst, n, prev, t,
     opened, query_salt, query_value, user_salt, user_value, user_id) = rest.groups()  # fmt: skip
    if (prev is None) != (n == b"0") or (query is None) != (query_salt is None):
        return None
    if not _opens("user_id", user, user_salt, user_value):
        return None
    if query is not None and not _opens("query", query, query_salt, query_value):
        return None
    try:
        ts = micros(t.decode())
    except NotCanonical:
        return None
    encoded = raw[8 : -len(opened) - 9]
    if len(encoded) > MAX_ENTRY - PLACE:
        return None
    pub = encoded[len(head) + len(masked) + 17 : -len(src) - 14]
    columns = Index(
        eid.decode(),
        "decision",
        ts,
        role.decode(),
        None if agent is None else agent.decode(),
        source.decode(),
        decision.decode(),
        policy.decode(),
        None if session is None else session.decode(),
        None,
    )
    return Spooled(
        src_id.decode(),
        inst.decode(),
        int(n),
        "" if prev is None else prev.decode(),
        encoded,
        core_hash(encoded),
        opened,
        columns,
        user_id.decode(),
        kind.decode(),
        (head, masked, pub, src),
    )


def _opens(path: str, committed: bytes, salt: bytes, value: bytes) -> bool:
    return b2a_base64(commitment(a2b_base64(salt), path, value), newline=False) == committed


def read(payload: object) -> Spooled:
    """Of a record that is known, or decoded; `Invalid` where it is none."""
    if isinstance(payload, KnownRecord):
        return judged(payload) or read_payload(orjson.loads(payload.raw))
    return read_payload(payload)


_ENVELOPE = re.compile(
    rb'\{"instance":"' + _NAME + rb'","source":"' + _NAME + rb'","records":\[(?=\{)'
)
_BETWEEN = b',{"core":'
_END = b"]}"


class KnownBatch(NamedTuple):
    """`records` as `read` takes them: known ones, and what the others decode to."""

    source: str
    instance: str
    records: list[object]


def known_batch(body: bytes) -> KnownBatch | None:
    """The body of a shipper, if it has the form; a whole body otherwise decodes, or does not."""
    envelope = _ENVELOPE.match(body)
    if envelope is None or not (body.endswith(_END) and _utf8(body)):
        return None
    at, last = envelope.end(), len(body) - len(_END)
    records: list[object] = []
    while True:
        found = known(body, at)
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
    return KnownBatch(envelope[2].decode(), envelope[1].decode(), records)


_COMMA = ord(",")


def _decoded(piece: bytes) -> object | None:
    """The one value that a piece of a list in an object is, None where it is not one."""
    try:
        value = orjson.loads(b"[[%b]]" % piece)  # as deep as it stands in the body
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
