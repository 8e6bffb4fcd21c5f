"""Page tokens: opaque, authenticated, bound to a key and a search, good for ten minutes."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import Malformed
from sidecar.authzen import wire
from sidecar.authzen.search.handlers import KEY_BYTES, PageStart, PageTokens
from tests.support.sidecar import FakeClock

QUESTION = {"search": "subject", "subject": {"type": "agent"}, "action": {"name": "read"}}
START = PageStart("agt_7", 100)


def tokens(secret: bytes = b"k" * KEY_BYTES, clock: FakeClock | None = None) -> PageTokens:
    return PageTokens(secret, (clock or FakeClock()).clock.monotonic)


def refusal(of: PageTokens, token: str, key: str = "key_1", question: object = QUESTION) -> str:
    with pytest.raises(Malformed) as refused:
        of.read(token, key, question)
    return refused.value.message


def test_a_token_holds_where_the_next_page_begins() -> None:
    made = tokens()
    assert made.read(made.make(START, "key_1", QUESTION), "key_1", QUESTION) == START


def test_the_order_of_members_does_not_matter_to_a_token() -> None:
    made = tokens()
    turned = dict(reversed(QUESTION.items()))
    assert made.read(made.make(START, "key_1", QUESTION), "key_1", turned) == START


def test_a_token_of_another_key_another_process_or_another_search_is_refused() -> None:
    made = tokens()
    token = made.make(START, "key_1", QUESTION)
    assert "not issued by this process for this API key" in refusal(made, token, key="key_2")
    assert "not issued by this process" in refusal(tokens(b"o" * KEY_BYTES), token)
    assert "another search" in refusal(made, token, question={**QUESTION, "search": "resource"})


def test_a_token_is_good_for_ten_minutes() -> None:
    clock = FakeClock()
    made = tokens(clock=clock)
    token = made.make(START, "key_1", QUESTION)
    clock.ahead = 599
    assert made.read(token, "key_1", QUESTION) == START
    clock.ahead = 601
    assert "expired" in refusal(made, token)


@given(st.text(max_size=200))
def test_any_other_text_is_refused(text: str) -> None:
    assert "not issued by this process" in refusal(tokens(), text)


@given(st.integers(min_value=0), st.integers(1, 255))
def test_a_changed_byte_is_refused(place: int, change: int) -> None:
    made = tokens()
    raw = bytearray(urlsafe_b64decode(made.make(START, "key_1", QUESTION) + "=="))
    raw[place % len(raw)] ^= change
    assert "not issued by this process" in refusal(made, wire.base64url_encode(bytes(raw)))
