"""Identifiers and keys: their format, their order, and mistyped keys."""

import hashlib
import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.ids import ALPHABET, base62, prefixed, uuid7
from policies.ground.keys import key_digest, make_key, well_formed

ENTROPY = st.binary(min_size=10, max_size=32)
TIMES = st.integers(0, (2**48 - 1) * 1000 + 999)
SECRETS = st.binary(min_size=32, max_size=32)


@given(TIMES, ENTROPY)
def test_a_uuid7_has_the_form_of_rfc_9562(at: int, entropy: bytes) -> None:
    text = uuid7(at, entropy)
    parsed = UUID(text)
    assert str(parsed) == text
    assert parsed.version == 7
    assert parsed.variant == "specified in RFC 4122"
    assert parsed.int >> 80 == at // 1000


@given(TIMES, TIMES, ENTROPY, ENTROPY)
def test_uuid7s_of_different_milliseconds_are_ordered_by_time(
    one: int, other: int, first: bytes, second: bytes
) -> None:
    if one // 1000 != other // 1000:
        assert (one < other) == (uuid7(one, first) < uuid7(other, second))


def test_every_random_bit_of_a_uuid7_is_drawn_for_itself() -> None:
    """74 bits are free beside time, version and variant. Each depends on one bit of the entropy,
    and no two on the same."""
    base = UUID(uuid7(0, bytes(10))).int
    moved = [UUID(uuid7(0, (1 << bit).to_bytes(10, "big"))).int ^ base for bit in range(80)]
    changing = [change for change in moved if change]
    assert all(change.bit_count() == 1 for change in changing)
    assert len(set(changing)) == len(changing) == 74


@given(st.integers(0, 2**256))
def test_base62_is_read_back_digit_by_digit(number: int) -> None:
    read = 0
    for digit in base62(number, 60):
        read = read * 62 + ALPHABET.index(digit)
    assert read == number
    assert len(base62(number, 60)) >= 60


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_a_prefixed_id_has_a_fixed_length_and_sorts_like_its_number(
    one: bytes, other: bytes
) -> None:
    first, second = prefixed("pol_", one), prefixed("pol_", other)
    assert re.fullmatch(r"pol_[0-9A-Za-z]{22}", first)
    assert (one < other) == (first < second)


@given(SECRETS)
def test_a_key_that_we_made_is_well_formed(entropy: bytes) -> None:
    key = make_key(entropy)
    assert re.fullmatch(r"slc_[0-9A-Za-z]{49}", key)
    assert well_formed(key)
    assert key_digest(key) == hashlib.sha256(key.encode()).digest()


@given(SECRETS, st.integers(4, 52), st.sampled_from(ALPHABET))
def test_a_key_with_one_wrong_character_is_not(entropy: bytes, at: int, character: str) -> None:
    key = make_key(entropy)
    mistyped = key[:at] + character + key[at + 1 :]
    assert well_formed(mistyped) == (mistyped == key)


@given(SECRETS, st.integers(4, 51))
def test_a_key_with_two_neighbours_swapped_is_not(entropy: bytes, at: int) -> None:
    key = make_key(entropy)
    swapped = key[:at] + key[at + 1] + key[at] + key[at + 2 :]
    assert well_formed(swapped) == (swapped == key)


@pytest.mark.parametrize("change", [str.upper, str.lower, str.strip, lambda k: k + "0"])
def test_a_key_in_another_form_is_not(change: object) -> None:
    key = make_key(hashlib.sha256(b"a key").digest())
    changed = change(key) if change is not str.strip else f" {key}"  # type: ignore[operator]
    assert not well_formed(changed)


@given(st.text(max_size=60))
def test_any_text_without_lone_surrogates_has_a_digest(text: str) -> None:
    assert not well_formed(text)
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert key_digest(text) == hashlib.sha256(text.encode()).digest()


def test_stray_bytes_of_a_header_are_digested_unchanged() -> None:
    raw = b"slc_\xff\xfe"
    assert key_digest(raw.decode("utf-8", "surrogateescape")) == hashlib.sha256(raw).digest()
