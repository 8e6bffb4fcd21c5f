"""Services are killed at random moments under load: no answered decision is lost or doubled."""

from functools import partial

import pytest

from tests.runner import tiers
from tests.stories.clients import each_exactly_once, in_thread, pause, while_asking
from tests.support.properties import chance, few
from tests.support.stack import Service, Stack
from tests.support.waiting import AWAY, until


@tiers.rotating(0, 3)
@pytest.mark.parametrize("victims", ["sidecar", "control", "both"])
async def test_every_answered_decision_is_recorded_once_through_kills(
    stack: Stack, victims: str
) -> None:
    kills, draw = few(20), chance(f"kill {victims}")
    services: list[Service] = {
        "sidecar": [stack.sidecar],
        "control": [stack.control],
        "both": [stack.sidecar, stack.control],
    }[victims]

    async def kill_again_and_again() -> None:
        for _ in range(kills):
            await pause(draw, 0.6)
            for service in services:
                service.kill()
            for service in reversed(services):  # a sidecar is ready only once it has a policy set
                await in_thread(partial(service.start, ready=False))
            for service in reversed(services):
                await in_thread(service.wait_ready)
        await pause(draw, 0.6)

    heard = await while_asking(
        stack, kill_again_and_again, sidecar=few(24, at_least=12), control=4, rest=0.02
    )
    assert len(heard.decisions) > kills
    assert heard.unanswered, "no client noticed a kill: the test proves nothing"
    until("everything is shipped", lambda: shipped(stack), despite=AWAY)
    each_exactly_once(stack, heard)


def shipped(stack: Stack) -> bool:
    """The log holds one last decision through the sidecar, and so everything before it."""
    status, answer = stack.evaluate()
    assert status == 200, answer
    stack.wait_shipped(answer["event_id"])
    return True
