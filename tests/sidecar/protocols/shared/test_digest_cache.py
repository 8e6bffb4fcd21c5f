"""The cache that all protocols use: what it keeps, for how long, and how much."""

import pytest

from sidecar.protocols.shared.caches import DigestCache, digest, digest_of_fields


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def kept(known: DigestCache[str], key: bytes, value: str = "value", size: int = 10) -> None:
    known.put(key, value, size, known.start_lookup())


def test_bytes_are_bounded_and_the_oldest_entry_is_evicted_first() -> None:
    known: DigestCache[str] = DigestCache(Time(), max_bytes=100)
    for number in range(30):
        kept(known, b"%d" % number)
        assert known.bytes <= 100
    assert len(known) == 10
    assert known.get(b"19") is None
    assert known.get(b"20") == "value"


def test_a_value_over_the_limit_is_not_kept_and_removes_the_one_it_replaces() -> None:
    known: DigestCache[str] = DigestCache(Time(), max_bytes=100)
    kept(known, b"a")
    kept(known, b"a", "huge", 101)
    assert known.get(b"a") is None
    assert known.bytes == 0


def test_entries_are_bounded() -> None:
    known: DigestCache[str] = DigestCache(Time(), max_entries=3)
    for number in range(5):
        kept(known, b"%d" % number, size=0)
    assert [known.get(b"%d" % number) for number in range(5)] == [None, None, *["value"] * 3]


def test_a_value_expires_and_is_cleared_by_a_change_of_names() -> None:
    time = Time()
    known: DigestCache[str] = DigestCache(time, ttl_seconds=30)
    kept(known, b"a")
    time.now += 30
    assert known.get(b"a") == "value"
    time.now += 0.1
    assert known.get(b"a") is None
    assert known.get(b"a", include_expired=True) == "value"
    asked = known.start_lookup()
    known.clear()
    known.put(b"a", "old", 1, asked)
    assert known.get(b"a", include_expired=True) is None
    assert known.bytes == 0


def test_the_age_of_a_value_counts_from_the_start_of_its_look_up() -> None:
    time = Time()
    known: DigestCache[str] = DigestCache(time, ttl_seconds=30)
    started = known.start_lookup()
    time.now += 10
    known.put(b"a", "value", 1, started)
    time.now += 20.1
    assert known.get(b"a") is None


def test_a_replaced_value_counts_once() -> None:
    known: DigestCache[str] = DigestCache(Time())
    for _ in range(3):
        kept(known, b"a")
    assert known.bytes == 10
    known.discard(b"a")
    known.discard(b"a")
    assert (len(known), known.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((b"ab", b"c"), (b"a", b"bc")),
        ((b"a", b""), (b"a",)),
        ((b"1:a",), (b"a",)),
        ((b"", b"a"), (b"a", b"")),
    ],
)
def test_different_parts_make_different_keys(
    one: tuple[bytes, ...], other: tuple[bytes, ...]
) -> None:
    assert digest(*one) != digest(*other)


def test_a_key_holds_none_of_the_credentials() -> None:
    secret = b"Bearer secret" * 1000
    key = digest_of_fields("index", [(b"authorization", secret)])
    assert len(key) == 32
    assert key != digest_of_fields("index", [(b"authorization", secret + b"x")])
    assert key != digest_of_fields("other", [(b"authorization", secret)])
