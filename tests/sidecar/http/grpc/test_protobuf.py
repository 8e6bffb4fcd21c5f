"""What the reader of protocol buffers refuses, byte by byte, and what it keeps apart."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from policies.ground.errors import Malformed
from sidecar.http.grpc.protobuf import MAX_DEPTH, MAX_FIELDS, Name, Schema
from sidecar.http.grpc.wire import bytes_field, varint, varint_field

SCHEMA = Schema("""
Search
    1 collection string @collection
    2 vector float*; 3 limit uint32; 4 small int32; 5 exact bool
    6 within Search
    7 also Search*
    8 by_key map<string, Search>
    9 numbers uint64*
    10 ids map<bool, int64>
    11 counted uint32 ?
    12 weight fixed64
    oneof kind
        13 alias string @alias
        14 number int64
    15 tenants string* @tenant
    16 signed sint32
    17 blob raw
""")
SEARCH = SCHEMA["Search"]
OPEN = bytes_field(1, b"open")


def nested(number: int, levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        data = bytes_field(number, data)
    return data


REFUSED = {
    "an unknown number": (varint_field(99, 1), "the unknown field 99"),
    "the number 0": (b"\x02\x00", "the unknown field 0"),
    "a number of its alone that is too large": (varint((1 << 34) | 1 << 3 | 2) + b"\0", "unknown"),
    "an unknown number within": (bytes_field(6, varint_field(99, 1)), "the unknown field 99"),
    "an unknown number in a map": (bytes_field(8, varint_field(3, 1)), "the unknown field 3"),
    "a number as bytes": (bytes_field(3, b"\1"), "`Search.limit` has the wire type 2"),
    "bytes as a number": (varint_field(1, 1), "`Search.collection` has the wire type 0"),
    "eight bytes as four": (b"\x65\0\0\0\0", "`Search.weight` has the wire type 5"),
    "the start of a group": (b"\x33\x34", "`Search.within` has the wire type 3"),
    "the end of a group": (b"\x34", "`Search.within` has the wire type 4"),
    "an unknown wire type": (b"\x0e", "`Search.collection` has the wire type 6"),
    "a string twice": (OPEN + OPEN, "`Search.collection` stands twice"),
    "a string and an empty one": (OPEN + bytes_field(1, b""), "`Search.collection` stands twice"),
    "an empty string and another": (bytes_field(1, b"") + OPEN, "`Search.collection` stands twice"),
    "a number and zero": (b"\x18\1\x18\0", "`Search.limit` stands twice"),
    "zero and a number": (b"\x18\0\x18\1", "`Search.limit` stands twice"),
    "a message twice, which would be merged": (
        bytes_field(6, OPEN) + bytes_field(6, b""), "`Search.within` stands twice",
    ),
    "a string twice, far apart": (OPEN + b"\x18\1" + OPEN, "`Search.collection` stands twice"),
    "a oneof twice": (bytes_field(13, b"a") + varint_field(14, 0), "`Search.kind` stands twice"),
    "a oneof twice, backwards": (
        varint_field(14, 0) + bytes_field(13, b"a"), "`Search.kind` stands twice",
    ),
    "a member of a oneof twice": (bytes_field(13, b"a") * 2, "`Search.kind` stands twice"),
    "a key of a map twice": (
        bytes_field(8, bytes_field(1, b"a")) * 2, "`Search.by_key` has the same key twice",
    ),
    "a key of a map twice, once unwritten": (
        bytes_field(10, b"") + bytes_field(10, b"\x08\0\x10\1"), "the same key twice",
    ),
    "two keys in an entry": (bytes_field(8, b"\x0a\0\x0a\0"), "of `by_key`.key` stands twice"),
    "two values in an entry": (bytes_field(8, b"\x12\0\x12\0"), "of `by_key`.value` stands twice"),
    "text that is not UTF-8": (bytes_field(1, b"\xff"), "`Search.collection` is not UTF-8"),
    "half a surrogate": (bytes_field(1, b"\xed\xa0\x80"), "is not UTF-8"),
    "overlong UTF-8": (bytes_field(1, b"\xc1\xb3hut"), "is not UTF-8"),
    "a key that is not UTF-8": (bytes_field(8, bytes_field(1, b"\xff")), "is not UTF-8"),
    "a number of more bytes than needed": (b"\x18\x81\0", "more bytes than it needs"),
    "a tag of more bytes than needed": (b"\x8a\0\4open", "more bytes than it needs"),
    "a length of more bytes than needed": (b"\x0a\x84\0open", "more bytes than it needs"),
    "a number in a list of more bytes than needed": (bytes_field(9, b"\x81\0"), "than it needs"),
    "a number of eleven bytes": (b"\x48" + b"\xff" * 10 + b"\1", "more than 64 bits"),
    "a number of 65 bits": (b"\x48" + b"\xff" * 9 + b"\2", "more than 64 bits"),
    "a number that is cut": (b"\x18\x81", "in the middle of a number"),
    "a tag alone": (b"\x18", "in the middle of a number"),
    "a cut tag": (b"\x8a", "in the middle of a number"),
    "a number that is cut by its list": (bytes_field(9, b"\x81") + b"\1", "middle of a number"),
    "a string that is cut": (b"\x0a\5open", "`Search.collection` is longer than its message"),
    "a string that reaches out of its message": (
        bytes_field(6, b"\x0a\4") + b"open", "`Search.collection` is longer than its message",
    ),
    "a fixed number that is cut": (b"\x61" + b"\0" * 7, "`Search.weight` is longer"),
    "a fixed number that reaches out of its message": (
        bytes_field(6, b"\x61\0") + b"\0" * 7, "`Search.weight` is longer",
    ),
    "a vector of a part of a number": (bytes_field(2, b"\0" * 5), "in the middle of a number"),
    "uint32 of 33 bits": (varint_field(3, 1 << 32), "not a number of the type `uint32`"),
    "int32 of 33 bits": (varint_field(4, 1 << 32), "not a number of the type `int32`"),
    "a negative int32 of 32 bits": (varint_field(4, 1 << 31), "not a number of the type `int32`"),
    "sint32 of 33 bits": (varint_field(16, 1 << 32), "not a number of the type `sint32`"),
    "a bool that is 2": (varint_field(5, 2), "not a number of the type `bool`"),
    "one level too many": (nested(6, MAX_DEPTH + 1), "nested more than 100 levels"),
    "one level too many in a list": (nested(7, MAX_DEPTH + 1), "nested more than 100 levels"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_two_readers_could_read_differently_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=re.escape(reason)):
        SEARCH.decode(data)


ONE_BY_ONE = b"\x15\0\0\x80\x3f" * 2
TOGETHER = bytes_field(2, b"\0\0\x80\x3f" * 2)


@pytest.mark.parametrize(
    ("data", "values", "canonical"),
    [
        (b"", {}, b""),
        (b"\x18\1" + OPEN, {"collection": "open", "limit": 1}, OPEN + b"\x18\1"),
        (b"\x18\0", {}, b""),
        (bytes_field(1, b""), {}, b""),
        (b"\x58\0", {"counted": 0}, b"\x58\0"),
        (varint_field(14, 0), {"number": 0}, varint_field(14, 0)),
        (bytes_field(6, b""), {"within": {}}, bytes_field(6, b"")),
        (bytes_field(17, b""), {"blob": b""}, bytes_field(17, b"")),
        (bytes_field(15, b""), {"tenants": [""]}, bytes_field(15, b"")),
        (ONE_BY_ONE, {"vector": b"\0\0\x80\x3f" * 2}, TOGETHER),
        (TOGETHER + TOGETHER, {"vector": b"\0\0\x80\x3f" * 4}, bytes_field(2, b"\0\0\x80\x3f" * 4)),
        (bytes_field(2, b""), {}, b""),
        (b"\x48\1\x48\2", {"numbers": [1, 2]}, bytes_field(9, b"\1\2")),
        (bytes_field(10, b""), {"ids": {False: 0}}, bytes_field(10, b"\x08\0\x10\0")),
        (
            bytes_field(8, bytes_field(1, b"a")), {"by_key": {"a": {}}},
            bytes_field(8, bytes_field(1, b"a") + bytes_field(2, b"")),
        ),
        (b"\x20" + b"\xff" * 9 + b"\1", {"small": -1}, b"\x20" + b"\xff" * 9 + b"\1"),
        (varint_field(16, 1), {"signed": -1}, varint_field(16, 1)),
    ],
)  # fmt: skip
def test_other_bytes_of_the_same_meaning_are_written_in_one_form(
    data: bytes, values: dict[str, Any], canonical: bytes
) -> None:
    decoded = SEARCH.decode(data)
    assert decoded[:2] == (values, data == canonical)
    assert SEARCH.encode(decoded.values) == canonical
    assert {type(each) for each in decoded.values.values()} <= {bool, bytes, dict, int, list, str}


@pytest.mark.deep(stands_in="test_what_two_readers_could_read_differently_is_refused")
def test_messages_up_to_the_limits_are_allowed_and_larger_ones_refused() -> None:
    for number in (6, 7):
        assert SEARCH.decode(nested(number, MAX_DEPTH)).canonical
    many = SEARCH.decode(bytes_field(9, b"\1" * (MAX_FIELDS - 1)))
    assert (len(many.values["numbers"]), many.fields) == (MAX_FIELDS - 1, MAX_FIELDS)
    for data in (bytes_field(9, b"\1" * MAX_FIELDS), bytes_field(15, b"") * (MAX_FIELDS + 1)):
        with pytest.raises(Malformed, match="more than 100000 fields"):
            SEARCH.decode(data)


@pytest.mark.deep(stands_in="test_other_bytes_of_the_same_meaning_are_written_in_one_form")
def test_a_vector_of_many_parts_is_joined_once() -> None:
    part = bytes_field(2, b"\0\0\x80\x3f" * 10)
    started = time.process_time()
    decoded = SEARCH.decode(part * MAX_FIELDS)
    assert decoded.values == {"vector": b"\0\0\x80\x3f" * 10 * MAX_FIELDS}
    # Copying what was before at each part takes minutes.
    assert time.process_time() - started < 10


def test_names_are_found_at_every_depth() -> None:
    inner = {"collection": "c", "tenants": ["t", ""], "alias": "a"}
    values = {
        "collection": "top", "within": {"within": inner}, "also": [inner, {}],
        "by_key": {"collection": {"alias": "k"}, "x": inner}, "limit": 3,
    }  # fmt: skip
    of_inner = [("collection", "c"), ("alias", "a"), ("tenant", "t"), ("tenant", "")]
    assert list(SEARCH.names(SEARCH.decode(SEARCH.encode(values)).values)) == [
        Name(*each)
        for each in (
            ("collection", "top"), *of_inner, *of_inner, ("alias", "k"), *of_inner,
        )
    ]  # fmt: skip


def test_a_name_that_the_schema_lacks_is_not_encoded() -> None:
    with pytest.raises(KeyError, match="colection"):
        SEARCH.encode({"colection": "open"})
    with pytest.raises(KeyError, match="limits"):
        SEARCH.encode({"within": {"limits": 1}})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("    1 a string", "begins with a field"),
        ("A\n    1 a string; 1 b int32", "number twice"),
        ("A\n    1 a string; 2 a string", "number twice"),
        ("A\n    1 a B", "no message `B`"),
        ("A\n    1 a map<string, B>", "no message `B`"),
        ("A\n    1 a", "not a field"),
        ("A\n    one a string", "not a field"),
        ("A\n    1 a int32 @collection", "only a string"),
        ("A\n    1 a map<string, string> @collection", "only a string"),
        ("A\n    1 a string\nA\n    1 b string", "`A` twice"),
        ("A B\n    1 a string", "no name"),
    ],
)
def test_a_mistake_in_a_schema_is_found(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Schema(text)
