"""The fast reader of a sidecar's records judges as the slow one before it did (`slow_source`): both
refuse the same payloads, and return the same for the rest."""

import copy
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks.finding import Facts
from policies.definitions.model import Policy
from policies.evaluate import evaluate
from policies.ground.canonical import NotCanonical, b64, check, micros, rfc3339, unb64
from policies.ground.errors import Invalid
from policies.retrieval import Retrieval
from policies.trail.record import decision_record
from policies.trail.spool_chain import LogPosition, Spooled, read_payload
from tests.policies import slow_source
from tests.policies.strategies import situations
from tests.policies.trail.test_spool_chain import OPENINGS, PREV, RECORDS, at, payload, places
from tests.policies.world import START

PLACES = (("sluice/e/default", 0, ""), ('l"\\é😀\n', 2**53 - 1, PREV))


def read(text: object) -> tuple[Any, ...] | str:
    """What is stored of a record, or its error."""
    try:
        return kept(read_payload(text))
    except Invalid as error:
        return error.message


def kept(found: Spooled) -> tuple[Any, ...]:
    core = orjson.loads(found.encoded)
    src = core["src"]
    assert (found.source, found.instance) == (src["id"], src["inst"])
    assert (found.n, found.prev) == (src["n"], src["prev"])
    assert found.source_type == core["pub"].get("request", {}).get("source_type")
    entries = [
        found.entry(
            LogPosition(slow_source.encode(log), seq, prev.encode(), rfc3339(START).encode())
        )
        for log, seq, prev in PLACES
    ]
    same = (found.encoded, found.hash, found.openings, tuple(found.columns), found.user_id)
    return (*same, entries)


def slowly(text: object) -> tuple[Any, ...] | str:
    try:
        found = slow_source.read_payload(text)
    except Invalid as error:
        return error.message
    entries = [
        slow_source.entry_of(found.core, log=log, seq=seq, prev=prev, ts=rfc3339(START))
        for log, seq, prev in PLACES
    ]
    return (*found, entries)


def agree(value: object) -> None:
    """The results of both readers for a decoded value. Messages are compared too, except about
    base64."""
    fast, slow = read(value), slowly(value)
    if isinstance(slow, str) and "base64" in slow:
        assert isinstance(fast, str)
        assert "base64" in fast
    else:
        assert fast == slow


def agree_on_wire(raw: bytes) -> None:
    """The same for bytes, as far as they are JSON."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return
    agree(value)


NUMBERS = ["1.0", "1e3", "-0", "-0.0", "0.5", "9007199254740991", "9007199254740992",
           "-9007199254740991", "-9007199254740992", "18446744073709551615",
           "18446744073709551616", "1e400", "2", "-1", "true"]  # fmt: skip
HOSTILE = [
    *NUMBERS, "null", '""', '"x"', "[]", "{}", "[[]]", "[1.5]", '{"a":1.0}', '{"A":1}', '{"":1}',
    '{"a\\n":1}', '{"a\\u0000":1}', '"\\u0000"', '"\\u007f"', '"\\u0085"', '"\\ud83d\\ude00"',
    '"\\u2028"', '"\\u00ad"', '"\\u200b"', '"' + "y" * 256 + '"', '"' + "y" * 257 + '"',
    '"2026-02-30T00:00:00.000000Z"', '"2026-01-01T24:00:00.000000Z"', '"ALLOW"', '["ALLOW"]',
    '{"a":{"b":{"c":[{"d":[null,true,"x",3]}]}}}', '[["query","email"]]', '[["query",1]]',
    '{"kind":1,"masked":[],"pub":{},"v":1}', '"\\",\\"masked\\":"', '"decision"', '"gap"',
]  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) - 1, 2**53 + 1)
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "eid", "A", "", "é", "request", "a.b-c:d"]), inner)
    ),
    max_leaves=8,
)


@given(situations(), st.integers(0, 2**53 - 1), st.binary(min_size=32, max_size=32))
def test_records_of_a_sidecar_are_read_alike_by_both_readers(
    situation: tuple[Retrieval, Facts, list[Policy]], n: int, salt: bytes
) -> None:
    call, facts, _ = situation
    record = decision_record(call, evaluate(call, facts), facts, event_id="event-1", salt=salt)
    made = payload(record, n)
    agree(made)
    assert not isinstance(read(made), str)


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_text_in_place_of_any_value_is_judged_alike_by_both_readers(
    kind: str, hostile: str
) -> None:
    good = payload(RECORDS[kind])
    for path in places(good):
        bad = copy.deepcopy(good)
        at(bad, path[:-1])[path[-1]] = "@here@"
        agree_on_wire(orjson.dumps(bad).replace(b'"@here@"', hostile.encode()))


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize(
    "member", ["extra", "masked", "src", "request", "event", "A", "", "a b", "é", "x" * 300]
)
def test_an_extra_member_in_any_object_is_judged_alike_by_both_readers(
    kind: str, member: str
) -> None:
    good = payload(RECORDS[kind])
    objects = [(), *(path for path in places(good) if isinstance(at(good, path), dict))]
    for path in objects:
        values: list[object] = [None, 1, 1.5, "x", {}, [], {"id": "x"}]
        for value in values:
            bad = copy.deepcopy(good)
            at(bad, path)[member] = value
            agree(bad)


@given(st.sampled_from(sorted(RECORDS)), st.data())
def test_mutated_records_are_judged_alike_by_both_readers(kind: str, data: st.DataObject) -> None:
    bad = copy.deepcopy(payload(RECORDS[kind]))
    for _ in range(data.draw(st.integers(1, 3))):
        if not (found := places(bad)):
            break
        path = data.draw(st.sampled_from(found))
        if data.draw(st.booleans()):
            at(bad, path[:-1])[path[-1]] = data.draw(VALUES)
        else:
            del at(bad, path[:-1])[path[-1]]
    agree(bad)


@given(st.sampled_from(sorted(RECORDS)), st.data())
def test_tampered_bytes_are_judged_alike_by_both_readers(kind: str, data: st.DataObject) -> None:
    """White space, duplicate keys, keys in another order, escapes: other spellings that are still
    JSON."""
    raw = bytearray(orjson.dumps(payload(RECORDS[kind])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        piece = data.draw(
            st.sampled_from(
                [b" ", b"\n", b"0", b".0", b"e3", b"-", b'"', b"\\u0061", b"\\ud800", b'"v":2,',
                 b'"eid":"twice",', b"[", b"{", b"}", b"]", b"null", b"\xff", b"\xc3\xa9", b","]
            )
        )  # fmt: skip
        if data.draw(st.booleans()):
            raw[place:place] = piece
        else:
            raw[place : place + 1] = piece
    agree_on_wire(bytes(raw))


@pytest.mark.parametrize("change", OPENINGS.values(), ids=OPENINGS.keys())
def test_openings_are_judged_alike_by_both_readers(change: Any) -> None:
    bad = payload(RECORDS["decision"])
    change(bad)
    agree(bad)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, "\ud800", (), b"x", 2**70, {1: 2}.keys()])
def test_values_outside_of_json_are_refused_by_both_readers(wrong: object) -> None:
    """Nothing decodes to it today. A reader that did would have to change this test first."""
    good = payload(RECORDS["decision"])
    for path in (("core", "pub", "request", "task_type"), ("core", "pub", "facts", "x")):
        bad = copy.deepcopy(good)
        at(bad, path[:-1])[path[-1]] = wrong
        refused = (Invalid, TypeError)
        with pytest.raises(refused):
            read_payload(bad)
        with pytest.raises(refused):
            slow_source.read_payload(bad)


@pytest.mark.parametrize("depth", [1, 60, 61, 62, 63, 64, 65, 66, 67, 120, 1000])
@pytest.mark.parametrize("inner", ["[%s]", '{"a":%s}', '{"a":[%s]}'])
def test_depth_is_judged_alike_by_both_readers(depth: int, inner: str) -> None:
    text = "1"
    for _ in range(depth):
        text = inner % text
    good = orjson.dumps(payload(RECORDS["decision"]))
    agree_on_wire(good.replace(b'"facts":{', b'"facts":{"deep":%b,' % text.encode()))
    agree_on_wire(good.replace(b'"open":{', b'"open":{"deep":["AAAA",%b],' % text.encode()))


@given(VALUES)
def test_canonical_values_are_judged_alike_by_both_checks(value: object) -> None:
    said = []
    for judge in (check, slow_source.check):
        try:
            judge(value)
            said.append("")
        except NotCanonical as error:
            said.append(str(error))
    assert said[0] == said[1]


TIMES = st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")


@pytest.mark.deep(stands_in="test_each_spelling_of_a_time_is_read_alike_by_both_readers")
@given(TIMES | st.integers(-(10**16), 10**17).map(rfc3339) | st.text(max_size=30))
def test_times_are_read_alike_by_both_readers(text: str) -> None:
    read_time_alike(text)


NOON = "2026-02-28T12:00:00.000001Z"
SPELLINGS = {
    "": ("", f"{NOON}\n", f"\n{NOON}", f" {NOON}", f"{NOON}Z", NOON[:-1], NOON.lower()),
    "T": (" ", "t"),
    "Z": ("", "+00:00", "z"),
    ".000001": ("", ".", ".0000001", ",000001", ".00001"),
    "02-28": ("02-29", "00-01", "13-01", "0228", "1-1"),
    "12:00:00": ("24:00:00", "12:60:00", "12:00:60", "23:59:59", "1:00:00"),
    "2026": ("0000", "9999", "-001", "12026", "２０２６"),
}
MOMENTS = (0, 1, -1, 10**16, 253_402_300_799_999_999, -62_135_596_800_000_000)


def test_each_spelling_of_a_time_is_read_alike_by_both_readers() -> None:
    for text in (NOON, *map(rfc3339, MOMENTS), *SPELLINGS[""]):
        read_time_alike(text)
    for part, others in SPELLINGS.items():
        for other in others:
            read_time_alike(NOON.replace(part, other) if part else other)


def read_time_alike(text: str) -> None:
    found: list[object] = []
    for reader in (micros, slow_source.micros):
        try:
            found.append(reader(text))
        except NotCanonical:
            found.append(None)
    assert found[0] == found[1]


ALPHABET = "AQgwZz019+/=-_ \n.é\x00"


@given(st.binary(max_size=40).map(b64) | st.text(ALPHABET, max_size=12), st.data())
def test_base64_is_read_alike_by_both_readers(text: str, data: st.DataObject) -> None:
    if text and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(text) - 1))
        text = text[:place] + data.draw(st.sampled_from(ALPHABET)) + text[place + 1 :]
    found: list[object] = []
    for reader in (unb64, slow_source.unb64):
        try:
            found.append(reader(text))
        except NotCanonical:
            found.append(None)
    assert found[0] == found[1]
