"""Parsing JSON bodies and identifiers."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.canonical import identifier_fault, is_json, parse_object
from policies.ground.errors import Malformed

JSON = "application/json"


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"{}", {}),
        (b' \t\r\n{"a":1} ', {"a": 1}),
        ('{"é":"é"}'.encode(), {"é": "é"}),
        (b'{"a":{"b":1},"b":{"b":2}}', {"a": {"b": 1}, "b": {"b": 2}}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        (b'{"a":1e2,"b":-0}', {"a": 100.0, "b": 0}),
    ],
)  # fmt: skip
def test_an_object_is_read(raw: bytes, value: object, unique: bool) -> None:
    assert parse_object(raw, JSON, unique=unique) == value


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"null", b"true", b"1", b'"a"', b"[]", b"[{}]", b"{", b"}", b"{}{}", b"{}x",
        b'{"a":}', b'{"a" 1}', b"{a:1}", b"{'a':1}", b'{"a":1,}', b'{"a":NaN}', b'{"a":Infinity}',
        b'{"a":-Infinity}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}', b'{"a":0x1}',
        b'{"a":"\\ud800"}', b'{"a":"\\udc00x"}', b'{"a":"\\ud800\\ud800"}', b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc0\xaf"}', b'{"a":"\x01"}', b'{"a":"\n"}',
        b'{"a":"\\x41"}', b'{"a":"\\u12"}', b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b"\x00{}",
        b'{"a":1}//', b"/**/{}", b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":' + b"9" * 400 + b"}",
    ],
)  # fmt: skip
def test_a_body_that_is_not_a_json_object_is_malformed(raw: bytes, unique: bool) -> None:
    with pytest.raises(Malformed) as raised:
        parse_object(raw, JSON, unique=unique)
    assert raised.value.status == 400


DUPLICATES = [b'{"a":1,"a":1}', b'{"b":{"a":1,"a":2}}', b'{"b":[[{"a":1,"c":2,"a":3}]]}',
              b'{"a":1,"\\u0061":2}']  # fmt: skip


@pytest.mark.parametrize("raw", DUPLICATES)
def test_a_duplicate_key_is_refused_where_keys_must_be_unique(raw: bytes) -> None:
    with pytest.raises(Malformed, match="duplicate key `a`"):
        parse_object(raw, JSON, unique=True)
    assert parse_object(raw, JSON, unique=False)


@pytest.mark.parametrize("depth", [100, 400, 900, 980, 1000, 1020])
def test_a_deep_body_is_read_or_refused_and_nothing_else(depth: int) -> None:
    raw = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    with suppress(Malformed):
        assert parse_object(raw, JSON, unique=True).keys() == {"a"}


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_malformed(raw: bytes) -> None:
    with suppress(Malformed):
        assert isinstance(parse_object(raw, None, unique=True), dict)


@pytest.mark.parametrize(
    "content_type",
    [None, JSON, "Application/JSON", "application/json; charset=utf-8",
     'application/json;charset="UTF-8"', "application/json ; charset=UTF-8"],
)  # fmt: skip
def test_a_type_that_is_json_is_read(content_type: str | None) -> None:
    assert is_json(content_type)
    assert parse_object(b"{}", content_type, unique=True) == {}


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/xml", "application/x-www-form-urlencoded", "application/jsonp",
     "application/json; charset=utf-16", "application/json; charset=latin-1", "*/*",
     "multipart/form-data; boundary=application/json", "text/json"],
)  # fmt: skip
def test_a_type_that_is_not_json_is_malformed(content_type: str) -> None:
    with pytest.raises(Malformed, match="is not JSON"):
        parse_object(b"{}", content_type, unique=True)


@pytest.mark.parametrize("good", ["a", " ", "é", "x" * 256, "😀" * 256, "\u2028", "a/b", "\u00a0"])
def test_an_identifier_is_any_text_without_control_characters(good: str) -> None:
    assert identifier_fault(good) is None


@pytest.mark.parametrize(
    ("bad", "fault"),
    [("", "1 to 256"), ("x" * 257, "has 257"), ("a\nb", "control"), ("\x00", "control"),
     ("\x7f", "control"), ("\x9f", "control"), (1, "string"), (None, "string"), (True, "string"),
     (["a"], "string"), (b"a", "string")],
)  # fmt: skip
def test_a_text_that_is_not_an_identifier_is_refused_with_the_fault(
    bad: object, fault: str
) -> None:
    assert fault in (identifier_fault(bad) or "")
