"""The fast path accepts a record, or a body, only with the result of the slow reader."""

import copy
import itertools
import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.checks.finding import Facts
from policies.definitions.model import Policy
from policies.evaluate import evaluate
from policies.ground.canonical import rfc3339
from policies.ground.errors import Invalid
from policies.retrieval import Retrieval
from policies.trail.record import Record, decision_record
from policies.trail.record_fast_path import RecognisedRecord, match_batch, match_record, read
from policies.trail.spool_chain import spool_payload, src_member
from tests.policies.strategies import situations
from tests.policies.table_situations import table_situations
from tests.policies.test_fast_reading import HOSTILE, VALUES, kept, slowly
from tests.policies.trail.test_spool_chain import OPENINGS, PREV, RECORDS, at, places
from tests.policies.world import FULL, RETRIEVAL, START, STATED, decided, diverging, full_facts

MASKED = decided(
    RETRIEVAL._replace(query="call ann@example.com"),
    full_facts()._replace(settings=replace(full_facts().settings, pii_masking=True)),
)
ALL = {
    **RECORDS,
    "candidates": diverging(0, FULL),
    "masked": MASKED,
    "bare": decided(RETRIEVAL._replace(query=None)),
    "statement": decided(STATED, full_facts()),
}


def wire(record: Record, n: int = 3) -> bytes:
    src = src_member("sidecar-1", "i1", n, PREV if n else "", rfc3339(START))
    return spool_payload(record.core(src), record.openings)


def body(*records: bytes) -> bytes:
    return b'{"instance":"i1","source":"sidecar-1","records":[%b]}' % b",".join(records)


def said(payload: object) -> tuple[Any, ...] | str:
    try:
        return kept(read(payload))
    except Invalid as error:
        return error.message


def agree(raw: bytes) -> bool:
    """Whether the fast path accepts a body; if so, its result equals the slow reader's."""
    batch = match_batch(raw)
    if batch is None:
        return False
    decoded = orjson.loads(raw)
    assert decoded.keys() == {"instance", "source", "records"}
    assert (batch.instance, batch.source) == (decoded["instance"], decoded["source"])
    assert len(batch.records) == len(decoded["records"])
    for record, value in zip(batch.records, decoded["records"], strict=True):
        fast, slow = said(record), slowly(value)
        if isinstance(slow, str) and "base64" in slow:
            assert isinstance(fast, str)
        else:
            assert fast == slow
    return True


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [0, 3, 10**15 - 1, 10**15, 2**53 - 1])
def test_the_fast_path_accepts_what_a_sidecar_sends(name: str, n: int) -> None:
    raw = wire(ALL[name], n)
    assert agree(body(raw, raw))
    decision = name in (RECORDS.keys() ^ ALL.keys()) | {"decision"} and n < 10**15
    assert isinstance(match_record(raw), RecognisedRecord) == decision


def test_records_of_any_call_of_the_tables_are_read_alike_by_the_fast_path() -> None:
    queries = ("", "plain", 'a "quoted"\nlike\t\\ that, ü😀\x7f\x01', "\ud7ff\u2028</script>")
    for situation, query in zip(table_situations(), itertools.cycle(queries), strict=False):
        check_asked(situation, len(query), query)


@pytest.mark.deep(
    stands_in="test_records_of_any_call_of_the_tables_are_read_alike_by_the_fast_path"
)
@given(situations(), st.integers(0, 2**53 - 1), st.text(max_size=60))
@example((FULL, full_facts(), []), 1, 'a "quoted"\nlike\t\\ that, ü😀\x7f\x01')
def test_records_of_any_call_are_read_alike_by_the_fast_path(
    situation: tuple[Retrieval, Facts, list[Policy]], n: int, query: str
) -> None:
    check_asked(situation, n, query)


def check_asked(situation: tuple[Retrieval, Facts, list[Policy]], n: int, query: str) -> None:
    """Hold the fast path against the slow one, for the record of a call with this query."""
    call, facts, _ = situation
    call = call._replace(query=query)
    record = decision_record(call, evaluate(call, facts), facts, event_id="e", salt=bytes(32))
    assert agree(body(wire(record, n)))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_text_in_place_of_any_value_is_judged_alike_by_the_fast_path(
    name: str, hostile: str
) -> None:
    good = orjson.loads(wire(ALL[name]))
    for path in places(good):
        bad = copy.deepcopy(good)
        at(bad, path[:-1])[path[-1]] = "@here@"
        raw = orjson.dumps(bad).replace(b'"@here@"', hostile.encode())
        agree(body(raw, wire(ALL[name])))


@pytest.mark.parametrize("name", ALL)
def test_a_duplicate_or_misplaced_member_is_judged_alike_by_the_fast_path(name: str) -> None:
    raw = wire(ALL[name])
    for place in range(len(raw)):
        if raw[place : place + 1] in (b"{", b","):
            for piece in (b'"eid":"x",', b'"v":1,', b'"a":1,', b'"request":{},', b" ", b'"zz":{},'):
                agree(body(raw[: place + 1] + piece + raw[place + 1 :]))


@pytest.mark.parametrize("form", ["x", "a-b_9", "x" * 32, "", "API", "a b", "x" * 33, "a\x00", "é"])
def test_a_source_type_on_the_fast_path_is_a_name(form: str) -> None:
    raw = wire(decided(RETRIEVAL._replace(source_type=form)))
    assert agree(body(raw))
    good = form in ("x", "a-b_9", "x" * 32)
    assert isinstance(match_record(raw), RecognisedRecord) == good
    assert isinstance(said(match_record(raw) or orjson.loads(raw)), str) != good


@pytest.mark.parametrize("change", OPENINGS.values(), ids=OPENINGS.keys())
def test_openings_that_do_not_open_are_judged_alike_by_the_fast_path(change: Any) -> None:
    bad = orjson.loads(wire(RECORDS["decision"]))
    change(bad)
    raw = orjson.dumps(bad, option=orjson.OPT_SORT_KEYS)
    assert isinstance(said(match_record(raw) or bad), str)
    agree(body(raw))


PIECES = [b" ", b"\n", b"0", b".0", b"e3", b"-", b'"', b"\\u0061", b"\\ud800", b"\\n", b"\\/",
          b'"v":2,', b"[", b"{", b"}", b"]", b"null", b"true", b"\xff", b"\xc3\xa9", b",", b"=",
          b"\x7f", b"\x00", b"\xc2\x85", b'},{"core":', b"]}",
          b',"request":{', b"A", b"9"]  # fmt: skip


@given(st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=3), st.data())
def test_tampered_bytes_are_judged_alike_by_the_fast_path(
    names: list[str], data: st.DataObject
) -> None:
    raw = bytearray(body(*(wire(ALL[name]) for name in names)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        length = data.draw(st.integers(0, 2))
        raw[place : place + length] = data.draw(st.sampled_from(PIECES))
    agree(bytes(raw))


@pytest.mark.deep(
    stands_in="test_a_hostile_text_in_place_of_any_value_is_judged_alike_by_the_fast_path"
)
@given(st.sampled_from(sorted(ALL)), st.data())
def test_changed_values_are_judged_alike_by_the_fast_path(name: str, data: st.DataObject) -> None:
    bad = orjson.loads(wire(ALL[name]))
    path = data.draw(st.sampled_from(places(bad)))
    at(bad, path[:-1])[path[-1]] = data.draw(VALUES)
    text = json.dumps(bad, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        agree(body(text.encode()))
    except orjson.JSONDecodeError:  # it couldn't be in a body, so the fast path may not accept it
        pytest.fail("told by its bytes, and no JSON")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"[]", body(), body(b""), body(b"{}", b""), body(b"1],[2"), body(b"1]],[[2"),
     body(b"{}")[:-1], body(b"{}") + b" ", body(b'{"core":1}\xff'), body(b"{}") + b"x",
     b'{"instance":"","source":"s","records":[{}]}', b'{"instance":"i","source":"s"}',
     b'{"instance":"i\\n","source":"s","records":[{}]}', b'{"source":"s","instance":"i"}',
     b'{"instance":"' + b"y" * 257 + b'","source":"s","records":[{}]}'],
)  # fmt: skip
def test_a_body_of_another_form_is_left_to_the_full_decoder(raw: bytes) -> None:
    assert match_batch(raw) is None


@pytest.mark.parametrize("depth", [60, 61, 62, 63, 64, 65, 120, 1018, 1020, 1022, 1024, 1030])
def test_depth_is_judged_at_the_record_s_own_place(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    good = wire(RECORDS["decision"])
    deep = good.replace(b'"facts":{', b'"facts":{"a":%b,' % nested)
    for raw in (
        deep,
        good.replace(b'"agent":{', b'"a":%b,"agent":{' % nested),
        b'{"a":%b}' % nested,
    ):
        agree(body(raw))
        agree(body(good, raw, good))


def test_a_record_that_is_too_large_is_refused_as_by_the_full_decoder() -> None:
    big = orjson.loads(wire(RECORDS["decision"]))
    big["core"]["pub"]["response"]["reason"] = "x" * 63_000
    raw = orjson.dumps(big)
    assert match_record(raw) is not None
    assert "the limit is" in str(said(match_record(raw)))
    assert agree(body(raw))
