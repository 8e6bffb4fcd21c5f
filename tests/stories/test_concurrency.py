"""Sixty-four clients at once, through the sidecar and the control API."""

import asyncio

import pytest

from tests.stories.clients import each_exactly_once, while_asking
from tests.stories.test_kill import shipped
from tests.support.stack import Stack
from tests.support.waiting import AWAY, until


@pytest.mark.deep(
    stands_in="tests/stories/test_kill.py::test_every_answered_decision_is_recorded_once_through_kills"
)
@pytest.mark.parametrize(("sidecar", "control"), [(64, 0), (0, 64), (32, 32)])
async def test_the_chain_is_gapless_and_valid_under_many_clients(
    stack: Stack, sidecar: int, control: int
) -> None:
    heard = await while_asking(stack, lambda: asyncio.sleep(3), sidecar=sidecar, control=control)
    assert not heard.unanswered
    assert not heard.refused
    until("everything is shipped", lambda: shipped(stack), despite=AWAY)
    events = each_exactly_once(stack, heard)
    assert len(events) >= len(heard.decisions)
    report = stack.verify()
    assert report["last_seq"] == report["total"] - 1
