"""Replies of Redis are parsed however they are cut into pieces, and what is not one is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.policy_cache.partial_replica import resp
from sidecar.policy_cache.partial_replica.resp import (
    MAX_DEPTH,
    RedisError,
    ReplyError,
    ReplyParser,
    encode,
)

values = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40),
    lambda items: st.lists(items, max_size=5),
    max_leaves=20,
)


def written(value: Any) -> bytes:
    """A value as Redis writes it."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n%b" % (len(value), b"".join(map(written, value)))


def depth(value: Any) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def parsed(parser: ReplyParser, data: bytes, cuts: list[int]) -> list[tuple[Any]]:
    """What the parser returns for the pieces, apart from None."""
    edges = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    found = (parser.feed(data[a:b]) for a, b in pairwise(edges))
    return [each for each in found if each is not None]


@given(st.lists(values.filter(lambda value: depth(value) <= MAX_DEPTH), max_size=3), st.data())
def test_a_reply_is_the_same_however_it_arrives(replies: list[Any], data: st.DataObject) -> None:
    parser = ReplyParser()
    for reply in replies:
        cuts = data.draw(st.lists(st.integers(0, 1000), max_size=6))
        assert parsed(parser, written(reply), cuts) == [(reply,)]


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5))
def test_a_command_is_a_list_of_its_parts(parts: list[bytes]) -> None:
    assert ReplyParser().feed(encode(parts)) == (parts,)
    assert encode(["GET", 7]) == b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\n"


def test_other_forms_of_a_reply() -> None:
    parser = ReplyParser()
    assert parser.feed(b"+OK\r\n") == (b"OK",)
    assert parser.feed(b"*-1\r\n") == (None,)
    assert parser.feed(b"*0\r\n") == ([],)
    found = parser.feed(b"*2\r\n-ERR a\r\n*1\r\n*0\r\n")
    assert found is not None
    assert isinstance(found[0][0], ReplyError)
    assert str(found[0][0]) == "ERR a"
    assert found[0][1] == [[]]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b"_\r\n",  # of version 3
        b":x\r\n",
        b":\r\n",
        b"$x\r\n",
        b"*\xff\r\n",
        b"$1\r\nab\r\n",
        b"+OK\r\n+OK\r\n",
        b"*1\r\n" * (MAX_DEPTH + 1),
        b"+" + b"a" * 70_000,
    ],
)
def test_what_is_not_a_reply_is_refused(data: bytes) -> None:
    with pytest.raises(RedisError):
        ReplyParser().feed(data)


def test_a_reply_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resp, "MAX_REPLY", 1000)
    parser = ReplyParser()
    assert parser.feed(b"$100000\r\n" + bytes(900)) is None
    with pytest.raises(RedisError, match="longer than 1,000 bytes"):
        parser.feed(bytes(100))
