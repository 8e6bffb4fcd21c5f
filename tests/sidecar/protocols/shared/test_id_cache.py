"""What is known of ids, and for how long."""

from uuid import UUID

from sidecar.protocols.protocol import SourceRef
from sidecar.protocols.shared.digest_cache import KEPT
from sidecar.protocols.shared.id_cache import CollectionCache, KnownCollection

ONE = UUID(int=1)


def named(name: str) -> KnownCollection:
    return KnownCollection("t", "d", name, SourceRef(f"chroma://kb/t/d/{name}", "low"))


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_known_is_known_for_thirty_seconds_from_the_question() -> None:
    time = Time()
    known = CollectionCache(time)
    asked = known.moment()
    time.now += 10  # the answer took ten seconds
    known.learn(ONE, named("a"), asked)
    time.now = 130
    assert known.find(ONE) == named("a")
    time.now = 130.1
    assert known.find(ONE) is None


def test_an_answer_to_a_question_from_before_a_change_is_not_believed() -> None:
    known = CollectionCache(Time())
    asked = known.moment()
    known.forget()
    known.learn(ONE, named("a"), asked)
    assert known.find(ONE) is None
    known.learn(ONE, named("b"), known.moment())
    assert known.find(ONE) == named("b")


def test_a_change_forgets_everything() -> None:
    known = CollectionCache(Time())
    known.learn(ONE, named("a"), known.moment())
    known.forget()
    assert known.find(ONE) is None


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    known = CollectionCache(Time())
    for number in range(KEPT + 10):
        known.learn(UUID(int=number), named(str(number)), known.moment())
    assert known.find(UUID(int=9)) is None
    assert known.find(UUID(int=10)) is not None
    assert len(known._known) == KEPT
