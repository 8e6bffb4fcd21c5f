"""Recognises the line of a decision in an export by its bytes, without decoding it: our own
services write canonical JSON in one known form.

INVARIANT: this only accepts. A line that is not exactly in the known form goes to the full check,
the only place that refuses one; and a line accepted here is one that the full check accepts with
the same result (`tests/policies/trail/walk/test_known_line.py`). In the known form, names hold no
escapes, numbers have fewer digits than 2^53, and members have one order.
"""

import re
from functools import lru_cache

import orjson

from policies.ground.canonical import NotCanonical, check, encode

# Printable ASCII without `"` and `\`, so nothing in it is escaped, and a byte is a character.
_NAME = rb"[ !#-\[\]-~]{1,256}"
_TEXT = rb'"[^"\\\x00-\x1f]*(?:\\["\\bfnrt][^"\\\x00-\x1f]*)*"'
_COUNT = rb"(?:0|[1-9][0-9]{0,14})"
# Base64 of 32 bytes: the last of the 43 characters carries four bits, so its low two bits are zero.
_HASH = rb"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
_PAIR = rb'\["' + _NAME + rb'","' + _NAME + rb'"\]'
_TIME = rb"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z"

FRONT = re.compile(
    rb'\{"entry":(\{"cm":\{(?:"query":"(' + _HASH + rb')",)?"user_id":"(' + _HASH + rb')"\},'
    rb'"eid":"(' + _NAME + rb')","kind":"decision")(,"log":"' + _NAME + rb'")'
    rb'(,"masked":\[(?:' + _PAIR + rb"(?:," + _PAIR + rb')*)?\]),"prev":"((?:' + _HASH +
    rb')?)","pub":\{"context_hash":' + _TEXT + rb',"facts":(?=\{)'
)  # fmt: skip
"""Groups: 1 what begins the core, 2 and 3 the commitments of `query` and `user_id`, 4 the id, 5 the
log, 6 `masked` (5 and 6 with their names), 7 `prev`."""
REST = re.compile(
    rb'(?:,"masking":true)?,"request":\{(?:"agent_id":"' + _NAME + rb'",)?"agent_role":"' + _NAME +
    rb'","sensitivity_level":' + _TEXT + rb'(?:,"session_id":"' + _NAME + rb'")?,"source_id":"' +
    _NAME + rb'","source_type":"[a-z0-9_-]{1,32}"(?:,"task_type":' + _TEXT + rb')?\},'
    rb'"response":\{(?:"check":' + _TEXT + rb',)?"decision":"(?:ALLOW|DENY)",(?:"policy_id":' +
    _TEXT + rb',)?"policy_name":"' + _NAME + rb'",(?:"policy_version":' + _COUNT +
    rb',)?"reason":' + _TEXT + rb'\}\},"seq":(' + _COUNT + rb')'
    rb'(,"src":\{"id":"(' + _NAME + rb')","inst":"(' + _NAME + rb')","n":(' + _COUNT +
    rb'),"prev":"((?:' + _HASH + rb')?)","t":"' + _TIME + rb'"\})?,"ts":"(' + _TIME +
    rb')",("v":1\})(?:,"openings":(\{(?:"query":\["(' + _HASH + rb')",(' + _TEXT +
    rb')\],)?"user_id":\["(' + _HASH + rb')",("' + _NAME + rb'")\]\}))?\}'
)  # fmt: skip
"""Groups: 1 `seq`, 2 `src` with its name, 3 to 6 its `id`, `inst`, `n` and `prev`, 7 `ts`, 8 the
entry's end, 9 the openings, 10 to 13 their salts and values, of `query` and `user_id`."""
ENTRY_AT = len(b'{"entry":')
_NEXT = b',"request":{'
_MASKING = b',"masking":true'
_CACHED_FACTS = 1024
_MAX_FACTS_BYTES = 4096

Known = tuple["re.Match[bytes]", "re.Match[bytes]"]


def match_line(line: bytes) -> Known | None:
    """The two halves of a line in the known form, matched by `FRONT` and `REST`. The line must be
    UTF-8."""
    front = FRONT.match(line)
    if front is None:
        return None
    # The facts vary in form, so search for `_NEXT`, which follows them, and decode them (once: see
    # the cache). If a text within them contains `_NEXT`, the bytes before it are no object, and the
    # line gets the full check.
    begin = front.end()
    end = line.find(_NEXT, begin, begin + _MAX_FACTS_BYTES)
    if end < 0:
        return None
    if line.endswith(_MASKING, begin, end):
        end -= len(_MASKING)
    rest = REST.fullmatch(line, end)
    if rest is None or not _is_canonical_object(line[begin:end]):
        return None
    return front, rest


@lru_cache(maxsize=_CACHED_FACTS)
def _is_canonical_object(raw: bytes) -> bool:
    """Whether these are the canonical bytes of an object that is allowed in `pub` of an entry.
    Cached, since an agent sends the same facts again and again."""
    try:
        value = orjson.loads(raw)
        check([[value]])  # nested as deeply as in an entry, since the profile limits depth
    except (orjson.JSONDecodeError, NotCanonical):
        return False
    return isinstance(value, dict) and encode(value) == raw
