"""Texts are masked in turns with everything else on the loop, and as they would be at once."""

import asyncio
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from policies.ground.masking import Masked, MaskingTurns, masked_json, masked_text
from policies.ground.masking.mask import LONGEST, LONGEST_CONTEXT, mask_steps, tree_steps
from policies.ground.masking.turns import SLICE, TIME_LIMIT_SECONDS
from tests.policies.ground.masking.test_mask import HOSTILE

NUMBERS = "4111 "
PERSONAL = (
    "ann@example.com",
    "4111 1111 1111 1111",
    "ssn 123456789",
    "+49 30 1234567",
    "DE44 5001 0517 5407 3249 31",
    "password=hunter2",
    "driving licence A1B2C3D4",
    "４１１１\u200b１１１１ 1111 1111",
)


class Clock:
    """Each look at it takes a fifth of a slice."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += SLICE / 5
        return self.now


def turns() -> MaskingTurns:
    return MaskingTurns(Clock(), partial(asyncio.sleep, 0), asyncio.Event)


def taken(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """The result of the steps, and how often they paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_text_is_masked_in_steps_as_at_once(piece: str) -> None:
    text = (piece * 1200)[:1200]
    assert taken(mask_steps(text))[0] == masked_text(text)


@pytest.mark.parametrize("personal", PERSONAL)
@pytest.mark.parametrize(("filler", "border"), [("x ", 1024), ("ü ", 1024), ("ü ", 4096)])
def test_personal_data_across_a_border_of_parts_is_masked(
    personal: str, filler: str, border: int
) -> None:
    for before in range(border - len(personal) - 1, border + 2, 5):
        text = f"{(filler * border)[: before - 1]} {personal} {filler * 40}"
        masked = taken(mask_steps(text))[0]
        assert masked == masked_text(text)
        assert masked.labels, before
        assert personal not in masked.text


@pytest.mark.parametrize("piece", [NUMBERS, "030/123456 ", "85073003328 "])
def test_a_text_pauses_in_proportion_to_its_length(piece: str) -> None:
    short, long = (taken(mask_steps(piece * count))[1] for count in (400, 800))
    assert 50 <= short < long <= 3 * short


def test_an_object_is_masked_in_steps_as_at_once() -> None:
    detail = {"to": ["a ann@example.com", {"phone": "2125550142"}], "card": 4111111111111111}
    assert taken(tree_steps(detail))[0] == masked_json(detail)
    assert taken(tree_steps({"list": [[]] * 1000}))[1] >= 1000


def test_many_keys_that_are_masked_to_one_text_take_linear_time() -> None:
    # Counting from 1 for each, this would try eight million numbers.
    masked, _ = masked_json({f"a{number}@example.com": 1 for number in range(4000)})
    assert list(masked)[:3] == ["[EMAIL]", "[EMAIL] (2)", "[EMAIL] (3)"]
    assert list(masked)[-1] == "[EMAIL] (4000)"


def test_only_the_end_of_a_long_name_is_read_before_a_text() -> None:
    # The whole name for each text would take quadratic time.
    assert masked_json({"phone" + " " * LONGEST_CONTEXT: "671 05"})[1] == ()
    assert masked_json({"x " * LONGEST_CONTEXT + "phone": "671 051"})[1] == ("PHONE",)


def test_a_text_that_is_too_long_is_masked_whole() -> None:
    assert masked_text("x" * LONGEST).labels == ()
    for masked in (masked_text("x" * (LONGEST + 1)), taken(mask_steps("x" * (LONGEST + 1)))[0]):
        assert masked == Masked("[UNREAD]", ("UNREAD",))
    assert masked_text("[UNREAD]") == ("[UNREAD]", ())
    assert masked_json({"a": ["b", "x" * (LONGEST + 1)]}) == ({"a": ["b", "[UNREAD]"]}, ("UNREAD",))


async def test_a_short_text_needs_no_pause() -> None:
    async def never() -> None:
        raise AssertionError("it pauses")

    masking = MaskingTurns(lambda: 0.0, never, asyncio.Event)
    assert await masking.text("mail ann@example.com") == ("mail [EMAIL]", ("EMAIL",))
    assert await masking.text(NUMBERS * 100) == masked_text(NUMBERS * 100)
    assert await masking.json({"a": "ann@example.com"}) == ({"a": "[EMAIL]"}, ("EMAIL",))


async def test_others_run_between_the_slices_of_a_text_and_between_short_texts() -> None:
    count = 0

    async def others() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    masking = turns()
    running = asyncio.create_task(others())
    assert await masking.text(NUMBERS * 200) == masked_text(NUMBERS * 200)
    long, count = count, 0
    for _ in range(100):
        assert (await masking.text("call 4711")).labels == ()
    running.cancel()
    assert long > 50
    assert count >= 10


async def test_one_turn_of_the_loop_masks_one_slice_however_many_callers_wait() -> None:
    looks: list[int] = []
    turn = 0
    clock = Clock()

    def monotonic() -> float:
        looks.append(turn)
        return clock()

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    masking = MaskingTurns(monotonic, partial(asyncio.sleep, 0), asyncio.Event)
    running = asyncio.create_task(others())
    texts = [f"{number} {NUMBERS * 40}" for number in range(20)]
    assert await asyncio.gather(*map(masking.text, texts)) == [*map(masked_text, texts)]
    running.cancel()
    # A slice is five looks, and some to begin and to end; the end of one turn may be counted as the
    # next. The first turn has one of each text, to know when it must be done.
    most = max(looks.count(number) for number in range(2, turn))
    assert most <= 2 * 8
    assert turn >= 20


async def test_a_short_text_does_not_wait_for_a_long_one_to_end() -> None:
    masking = turns()
    long = asyncio.create_task(masking.text(NUMBERS * 400))
    short = asyncio.create_task(masking.text(NUMBERS * 20))
    done, _ = await asyncio.wait((long, short), return_when=asyncio.FIRST_COMPLETED)
    assert done == {short}
    assert await long == masked_text(NUMBERS * 400)


async def test_a_late_text_does_not_wait_for_a_slice_of_each_earlier_one() -> None:
    masking = turns()
    long = [asyncio.create_task(masking.text(f"{n} {NUMBERS * 400}")) for n in range(40)]
    wakes = 0

    async def others() -> None:
        nonlocal wakes
        while True:
            wakes += 1
            await asyncio.sleep(0)

    for _ in range(4 * len(long)):
        await asyncio.sleep(0)
    running = asyncio.create_task(others())
    assert await masking.text(NUMBERS * 3) == masked_text(NUMBERS * 3)
    running.cancel()
    for each in long:
        each.cancel()
    # In turn with the others it would take two turns of the loop for each.
    assert wakes < len(long)
    await asyncio.gather(*long, return_exceptions=True)
    assert await masking.text(NUMBERS * 100) == masked_text(NUMBERS * 100)


async def test_a_text_of_a_caller_that_left_holds_up_no_other() -> None:
    masking = turns()
    first, second = (asyncio.create_task(masking.text(NUMBERS * n)) for n in (400, 100))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == masked_text(NUMBERS * 100)
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await masking.text(NUMBERS * 100) == masked_text(NUMBERS * 100)


async def test_a_text_that_is_not_read_in_time_is_masked_as_a_whole() -> None:
    clock = Clock()

    async def long() -> None:
        clock.now += TIME_LIMIT_SECONDS

    masking = MaskingTurns(clock, long, asyncio.Event)
    text = "mail ann@example.com " * 20
    assert await masking.text(text) == ("[UNREAD]", ("UNREAD",))
    assert await masking.json({"a": [text], "b": 1}) == ({"detail": "[UNREAD]"}, ("UNREAD",))
