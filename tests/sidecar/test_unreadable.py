"""Which paths are logged of requests that can't be read."""

import asyncio
from functools import partial

import pytest

from policies.ground.masking import MaskingTurns
from sidecar.unmapped import LOG_SECONDS, LONGEST, UnreadableRequests


def requests_at(clock: list[float], *, masks: bool = False) -> UnreadableRequests:
    turns = MaskingTurns(lambda: clock[0], partial(asyncio.sleep, 0), asyncio.Event)
    return UnreadableRequests(lambda: clock[0], lambda: masks, turns)


async def test_a_path_is_logged_escaped_shortened_and_without_its_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [0.0]
    requests = requests_at(clock)
    for target, shown in (
        ("/a%2fb?key=secret", "/a%2fb"),
        ("http://me:secret@kb/a//b?q=secret", "/a//b"),
        ("http://me:se?cret@kb/a", "/"),
        ("/a://b", "/a://b"),
        ("*", "*"),
        ("/a\x1b[31m\n", "/a\\x1b[31m\\n"),
        ("/" + "a" * LONGEST, "/" + "a" * (LONGEST - 1) + "…"),
    ):
        await requests.note("GET", target, "event-1")
        line = caplog.messages[-1]
        assert line == f"event `event-1` is an unreadable request: GET `{shown}`"
        clock[0] += LOG_SECONDS


async def test_requests_left_out_of_the_log_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    requests = requests_at(clock)
    for _ in range(3):
        await requests.note("GET", "/a", "event-1")
    clock[0] = LOG_SECONDS
    await requests.note("GET", "/b", "event-2")
    first, second = caplog.messages
    assert first.endswith("GET `/a`")
    assert second.endswith("GET `/b`; 2 before it were not logged")


async def test_personal_data_in_a_path_is_masked_where_the_tenant_masks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for masks in (True, False):
        requests = requests_at([0.0], masks=masks)
        await requests.note("GET", "/mail//ann%40example.com", "event-1")
        assert ("example.com" in caplog.messages[-1]) is not masks
        assert "`/mail//" in caplog.messages[-1]
        # One that the cut divides would not be recognized.
        requests = requests_at([0.0], masks=masks)
        await requests.note("GET", f"/mail/{'a' * 180}/ann%40example.com", "event-1")
        assert ("/ann" in caplog.messages[-1]) is not masks
