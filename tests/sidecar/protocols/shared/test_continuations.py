"""What a continuation stands for: for whom it was begun, as long as it is known, and never less."""

import pytest

from sidecar.http.attribution import Attribution
from sidecar.protocols.protocol import SourceRef, Unresolved
from sidecar.protocols.shared.continuations import KEPT, KEPT_SECONDS, MOST_PLACES, Continuations

ADA = Attribution("ada", "s1", None, None)
A, B = SourceRef("rest://kb/a", "low"), SourceRef("rest://kb/b", "high")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_stands_for_what_it_was_issued_for() -> None:
    made = Continuations(Clock())
    made.issue("t", ADA, (A,))
    assert made.find("t", ADA) == (A,)
    made.issue("t", ADA, (B,))
    assert made.find("t", ADA) == (A, B)


@pytest.mark.parametrize(
    "who", [ADA._replace(user="bob"), ADA._replace(session="s2"), ADA._replace(session=None)]
)
def test_another_user_or_session_has_none(who: Attribution) -> None:
    made = Continuations(Clock())
    made.issue("t", ADA, (A,))
    with pytest.raises(Unresolved):
        made.find("t", who)


def test_it_ends() -> None:
    clock = Clock()
    made = Continuations(clock)
    made.issue("t", ADA, (A,))
    clock.now = KEPT_SECONDS + 1
    with pytest.raises(Unresolved):
        made.find("t", ADA)


def test_what_is_kept_is_bounded() -> None:
    made = Continuations(Clock())
    for number in range(KEPT + 1):
        made.issue(str(number), ADA, (A,))
    with pytest.raises(Unresolved):
        made.find("0", ADA)
    assert made.find(str(KEPT), ADA) == (A,)
    for number in range(MOST_PLACES + 1):
        made.issue("chosen", ADA, (SourceRef(f"rest://kb/{number}", "low"),))
    with pytest.raises(Unresolved):
        made.find("chosen", ADA)
