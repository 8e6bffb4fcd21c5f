"""The control API is down for a while. The sidecar keeps deciding as long as its limit allows."""

import asyncio
from pathlib import Path

import pytest

from tests.stories.clients import each_exactly_once, in_thread, while_asking
from tests.support.properties import few
from tests.support.stack import running_stack
from tests.support.waiting import AWAY, until


@pytest.mark.deep(
    stands_in="tests/stories/test_kill.py::test_every_answered_decision_is_recorded_once_through_kills"
)
async def test_the_log_catches_up_exactly_once_after_a_while_without_the_control_api(
    tmp_path: Path,
) -> None:
    seconds = few(60, at_least=15)  # a minute where there is time
    with running_stack(tmp_path, staleness=600) as stack:

        async def away() -> None:
            await asyncio.sleep(1)
            await in_thread(stack.control.stop)
            await asyncio.sleep(seconds)
            await in_thread(stack.control.start)

        heard = await while_asking(stack, away, sidecar=4, rest=0.01)
        stale = [d for d in heard.decisions.values() if d["policy_name"] == "policy_set_stale"]
        assert not stale
        assert not heard.unanswered
        status, last = stack.evaluate()
        assert (status, last["decision"]) == (200, "ALLOW")
        stack.wait_shipped(last["event_id"])
        heard.decisions[last["event_id"]] = last
        events = each_exactly_once(stack, heard)
        assert len(events) == len(heard.decisions)


async def test_a_stale_policy_set_denies_and_the_denials_are_recorded(tmp_path: Path) -> None:
    with running_stack(tmp_path, staleness=3) as stack:
        stack.control.stop()
        until(
            "the policy set is stale",
            lambda: stack.evaluate()[1]["policy_name"] == "policy_set_stale",
            despite=AWAY,
        )
        status, denied = stack.evaluate()
        assert (status, denied["decision"]) == (200, "DENY")
        stack.control.start()
        stack.wait_shipped(denied["event_id"])
        events = {event["event_id"]: event for event in stack.events()}
        assert events[denied["event_id"]]["policy_name"] == "policy_set_stale"
        until(
            "the sidecar allows again",
            lambda: stack.evaluate()[1]["decision"] == "ALLOW",
            despite=AWAY,
        )
        assert stack.verify()["valid"]
