"""A continuation stands for its sources, for its own user only, for a limited time, and never for
less."""

import pytest

from sidecar.http.attribution import Attribution
from sidecar.protocols.protocol import SourceRef, Unresolved
from sidecar.protocols.shared.caches import MAX_SOURCES, MAX_TOKENS, TOKEN_SECONDS, Continuations

ADA = Attribution("ada", "s1", None, None)
A, B = SourceRef("rest://kb/a", "low"), SourceRef("rest://kb/b", "high")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_judged_as_all_sources_it_was_issued_for() -> None:
    made = Continuations(Clock())
    made.remember("t", ADA, (A,))
    assert made.sources_of("t", ADA) == (A,)
    made.remember("t", ADA, (B,))
    assert made.sources_of("t", ADA) == (A, B)


@pytest.mark.parametrize(
    "who", [ADA._replace(user="bob"), ADA._replace(session="s2"), ADA._replace(session=None)]
)
def test_a_token_is_unusable_by_another_user_or_session(who: Attribution) -> None:
    made = Continuations(Clock())
    made.remember("t", ADA, (A,))
    with pytest.raises(Unresolved):
        made.sources_of("t", who)


def test_a_token_expires() -> None:
    clock = Clock()
    made = Continuations(clock)
    made.remember("t", ADA, (A,))
    clock.now = TOKEN_SECONDS + 1
    with pytest.raises(Unresolved):
        made.sources_of("t", ADA)


def test_tokens_and_their_sources_are_bounded() -> None:
    made = Continuations(Clock())
    for number in range(MAX_TOKENS + 1):
        made.remember(str(number), ADA, (A,))
    with pytest.raises(Unresolved):
        made.sources_of("0", ADA)
    assert made.sources_of(str(MAX_TOKENS), ADA) == (A,)
    for number in range(MAX_SOURCES + 1):
        made.remember("chosen", ADA, (SourceRef(f"rest://kb/{number}", "low"),))
    with pytest.raises(Unresolved):
        made.sources_of("chosen", ADA)
