"""The canonical encoding and its profile, times and base64."""

import base64
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.canonical import (
    MAX_DEPTH,
    MAX_INTEGER,
    NotCanonical,
    b64,
    check,
    encode,
    micros,
    rfc3339,
    unb64,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = (
    st.none() | st.booleans() | TEXT | st.integers(min_value=-MAX_INTEGER, max_value=MAX_INTEGER)
)
KEYS = st.text("abcdefghijklmnopqrstuvwxyz0123456789_.:-", min_size=1, max_size=12)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999


@pytest.mark.deep(stands_in="test_an_encoded_value_decodes_and_encodes_to_the_same")
@given(VALUES)
def test_the_encoding_of_canonical_values_equals_the_standard_library_s(value: object) -> None:
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encode(value) == plain.encode()
    check(value)


@given(VALUES)
def test_an_encoded_value_decodes_and_encodes_to_the_same(value: object) -> None:
    assert orjson.loads(encode(value)) == value
    assert encode(orjson.loads(encode(value))) == encode(value)
    standard = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encode(value) == standard.encode()
    check(value)


@given(
    VALUES, st.sampled_from([1.0, 0.5, 2**53, -(2**53), {"A": 1}, {"": 1}, {"é": 1}, {"a b": 1}])
)
def test_a_value_that_is_not_canonical_is_found_at_any_depth(inner: object, wrong: object) -> None:
    for value in (wrong, [inner, wrong], {"a": inner, "b": {"c": [wrong]}}):
        with pytest.raises(NotCanonical):
            check(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [0, {"b": 1.5}]}, "`$.a[1].b` is a float"),
        ({"a": 2**53}, "`$.a` is an integer beyond 53 bits"),
        ({"a": {"B": 1}}, "`$.a` has a key outside"),
        ({"a\n": 1}, "`$` has a key outside"),
        ({"a": b"x"}, "`$.a` is a bytes"),
        ({"a": (1, 2)}, "`$.a` is a tuple"),
    ],
)
def test_an_error_names_the_place_of_the_wrong_value(value: object, where: str) -> None:
    with pytest.raises(NotCanonical) as raised:
        check(value)
    assert where in str(raised.value)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_limited() -> None:
    check(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 2, 1000):
        with pytest.raises(NotCanonical, match="nested"):
            check(nested(depth))


@pytest.mark.parametrize("value", ["\ud800", 2**53, -(2**53), 2**70])
def test_a_value_without_a_canonical_form_is_not_encoded(value: object) -> None:
    with pytest.raises(TypeError):
        encode({"a": value})


@given(st.integers(FIRST, LAST))
def test_a_time_is_unchanged_by_writing_and_reading(at: int) -> None:
    text = rfc3339(at)
    assert len(text) == 27
    assert text.endswith("Z")
    assert micros(text) == at


@given(st.integers(FIRST, LAST), st.integers(FIRST, LAST))
def test_times_have_the_same_order_as_their_texts(one: int, other: int) -> None:
    assert (one < other) == (rfc3339(one) < rfc3339(other))


def test_times_of_one_second_differ_in_their_fraction_only() -> None:
    assert [rfc3339(at) for at in (999_999, 1_000_000, 0, 1_000_001, 999_999)] == [
        "1970-01-01T00:00:00.999999Z",
        "1970-01-01T00:00:01.000000Z",
        "1970-01-01T00:00:00.000000Z",
        "1970-01-01T00:00:01.000001Z",
        "1970-01-01T00:00:00.999999Z",
    ]


@pytest.mark.parametrize("at", [FIRST - 1, LAST + 1, 10**18])
def test_a_time_beyond_the_years_has_no_text(at: int) -> None:
    with pytest.raises(OverflowError):
        rfc3339(at)


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:00:00.000000", "2026-01-01T00:00:00.000000+00:00",
        "2026-01-01 00:00:00.000000Z", "2026-01-01t00:00:00.000000z",
        "2026-01-01T00:00:00.000000Z\n", " 2026-01-01T00:00:00.000000Z",
        "2026-02-29T00:00:00.000000Z", "2026-13-01T00:00:00.000000Z", "0000-01-01T00:00:00.000000Z",
        "2026-01-01T24:00:00.000000Z", "2026-01-01T00:60:00.000000Z", "2026-01-01T00:00:60.000000Z",
        "٢٠٢٦-01-01T00:00:00.000000Z", "2026-01-01T00:00:00,000000Z", "12026-01-01T00:00:00.00000Z",
    ],
)  # fmt: skip
def test_another_form_of_time_is_refused(text: str) -> None:
    with pytest.raises(NotCanonical):
        micros(text)


@given(st.binary(max_size=80))
def test_base64_is_unchanged_by_writing_and_reading(raw: bytes) -> None:
    assert b64(raw) == base64.b64encode(raw).decode()
    assert unb64(b64(raw)) == raw


@pytest.mark.parametrize(
    "text",
    ["A", "AA", "AAA", "AA=", "AA==AA==", "AB==", "AAB=", "A A=", "AA==\n", "AA_-", "é===", "="],
)
def test_base64_in_another_form_than_ours_is_refused(text: str) -> None:
    with pytest.raises(NotCanonical):
        unb64(text)
