"""What ids stand for, and how long that is cached."""

from uuid import UUID

from sidecar.protocols.messages import SourceRef
from sidecar.protocols.shared.digest_cache import MAX_ENTRIES
from sidecar.protocols.shared.id_cache import CollectionCache, KnownCollection

ONE = UUID(int=1)


def named(name: str) -> KnownCollection:
    return KnownCollection("t", "d", name, SourceRef(f"chroma://kb/t/d/{name}", "low"))


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_entry_expires_thirty_seconds_after_its_look_up_began() -> None:
    time = Time()
    known = CollectionCache(time)
    asked = known.start_lookup()
    time.now += 10  # the look-up took ten seconds
    known.put(ONE, named("a"), asked)
    time.now = 130
    assert known.get(ONE) == named("a")
    time.now = 130.1
    assert known.get(ONE) is None


def test_a_look_up_that_began_before_a_change_is_not_cached() -> None:
    known = CollectionCache(Time())
    asked = known.start_lookup()
    known.clear()
    known.put(ONE, named("a"), asked)
    assert known.get(ONE) is None
    known.put(ONE, named("b"), known.start_lookup())
    assert known.get(ONE) == named("b")


def test_a_change_clears_the_cache() -> None:
    known = CollectionCache(Time())
    known.put(ONE, named("a"), known.start_lookup())
    known.clear()
    assert known.get(ONE) is None


def test_entries_are_bounded_and_the_oldest_is_evicted_first() -> None:
    known = CollectionCache(Time())
    for number in range(MAX_ENTRIES + 10):
        known.put(UUID(int=number), named(str(number)), known.start_lookup())
    assert known.get(UUID(int=9)) is None
    assert known.get(UUID(int=10)) is not None
    assert len(known) == MAX_ENTRIES
