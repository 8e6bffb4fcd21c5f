"""Long texts are masked in steps, and as they would be at once."""

from typing import Any

import pytest

from policies.ground.masking import (
    LONGEST_AT_ONCE,
    Masked,
    mask_ahead,
    mask_json_ahead,
    masked_json,
    masked_or_unread,
    masked_text,
    prepared,
)
from tests.policies.ground.masking.test_mask import HOSTILE

MAIL = "mail ann@example.com "


def taken(steps: Any) -> tuple[Any, int]:
    """The result of the steps, and how often they paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_text_masked_in_steps_is_masked_as_at_once(piece: str) -> None:
    text = piece * (1024 // len(piece))
    assert taken(mask_ahead(text))[0] == masked_text(text)


@pytest.mark.parametrize("piece", ["4111 ", "030/123456 ", "85073003328 "])
def test_a_text_of_candidates_pauses_in_proportion_to_its_length(piece: str) -> None:
    short, long = (taken(mask_ahead(piece * count))[1] for count in (400, 800))
    assert 2 <= short < long <= 3 * short


def test_a_detail_masked_in_steps_is_masked_as_at_once() -> None:
    detail = {"to": [MAIL, {"phone": "2125550142"}], "card": 4111111111111111, "secret": [1]}
    assert taken(mask_json_ahead(detail))[0] == masked_json(detail)
    assert taken(mask_json_ahead({"list": ["a"] * 1000}))[1] >= 1000


def test_many_keys_of_one_masked_text_take_no_more_than_a_step_each() -> None:
    # 4,000 keys: from 1 each time, this would try eight million numbers.
    masked, _ = masked_json({f"a{number}@example.com": 1 for number in range(4000)})
    assert list(masked)[:3] == ["[EMAIL]", "[EMAIL] (2)", "[EMAIL] (3)"]
    assert list(masked)[-1] == "[EMAIL] (4000)"


def test_a_long_text_that_was_not_masked_ahead_is_masked_whole() -> None:
    long = MAIL * 400
    assert masked_or_unread(long) == Masked("[UNREAD]", ("UNREAD",))
    with prepared({long: masked_text(long)}):
        assert masked_or_unread(long) == masked_text(long)
    assert masked_or_unread(long).labels == ("UNREAD",)
    middling = MAIL * (LONGEST_AT_ONCE // len(MAIL) + 1)
    assert masked_or_unread(middling) == masked_text(middling)
    assert masked_text("[UNREAD]") == ("[UNREAD]", ())
