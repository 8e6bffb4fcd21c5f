"""While long texts are masked, the event loop serves others."""

import asyncio

import pytest

from policies.ground.masking import masked_text
from sidecar.platform import long_texts
from sidecar.platform.long_texts import LongTexts

TEXT = "4111 " * 2000


async def test_other_tasks_run_in_between() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    masked = await LongTexts().masked(TEXT)
    running.cancel()
    assert masked == {TEXT: masked_text(TEXT)}
    assert turns > 10


async def test_one_text_is_masked_at_a_time() -> None:
    texts = LongTexts()
    tasks = [asyncio.create_task(texts.masked(f"{n} {TEXT}")) for n in range(3)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert done == {tasks[0]}
    await asyncio.gather(*tasks)


async def test_what_takes_too_long_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_texts, "SECONDS", 0.0)
    assert (await LongTexts().masked(TEXT))[TEXT].labels == ("UNREAD",)


async def test_a_short_text_needs_no_turn() -> None:
    assert await LongTexts().masked("4111") == {}
    assert await LongTexts().masked(None) == {}
