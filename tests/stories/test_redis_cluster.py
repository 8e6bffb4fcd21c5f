"""A Redis Cluster of three nodes, while operators change what an agent may read and the agent asks:
slots move from node to node, and a node is killed and comes back empty."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from policies.sets.redis_keys import CHALLENGES, set_key
from tests.support import redis
from tests.support.stack import Stack, call, running_stack
from tests.support.waiting import AWAY, until

pytestmark = redis.needs_redis

STALENESS = 10.0
GRACE = 2.0
TENANT = "default"


class Change(NamedTuple):
    """From `sent` on the agent may, or may no longer, read; every sidecar knows `STALENESS` after
    `answered`."""

    sent: float
    answered: float
    verdict: str


class Asked(NamedTuple):
    sent: float
    answered: float
    verdict: str
    event_id: str


class History:
    """Changes and decisions, by two threads that go on until `over`."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.changes = [Change(0.0, 0.0, "ALLOW")]
        self.asked: list[Asked] = []
        self.faults: list[Any] = []
        self._over = threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        threads = [threading.Thread(target=each) for each in (self._change, self._ask)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _change(self) -> None:
        (policy,) = self.stack.admin("GET", "/v1/policies")
        path = f"/v1/policies/{policy['policy_id']}"
        # expires on purpose
        while not self._over.wait(0.4):
            gone = self.changes[-1].verdict == "ALLOW"
            sent = time.monotonic()
            method, action = ("DELETE", path) if gone else ("POST", f"{path}/restore")
            self.stack.admin(method, action)
            verdict = "DENY" if gone else "ALLOW"
            self.changes.append(Change(sent, time.monotonic(), verdict))

    def _ask(self) -> None:
        # expires on purpose
        while not self._over.wait(0.02):
            sent = time.monotonic()
            status, answer = self.stack.evaluate()
            if status != 200:
                self.faults.append((status, answer))
                continue
            known = (answer["decision"], answer["event_id"])
            self.asked.append(Asked(sent, time.monotonic(), *known))

    def stale(self) -> list[Asked]:
        """Decisions by what had been replaced for longer than the limit."""
        return [each for each in self.asked if each.verdict not in self._allowed(each)]

    def _allowed(self, asked: Asked) -> set[str]:
        ends = [*(later.answered for later in self.changes[1:]), float("inf")]
        return {
            change.verdict
            for change, replaced in zip(self.changes, ends, strict=True)
            if change.sent <= asked.answered and replaced + STALENESS + GRACE >= asked.sent
        }

    def in_force(self) -> None:
        """Return once a change made after this call shows in a decision."""
        made, verdicts = len(self.changes) + 1, set[str]()

        def seen() -> bool:
            since = self.changes[made].answered if len(self.changes) > made else float("inf")
            verdicts.update(each.verdict for each in self.asked[-50:] if each.sent > since)
            return verdicts == {"ALLOW", "DENY"}

        until("changes are in force", seen, despite=AWAY)


def feed(stack: Stack) -> str:
    return str(call(stack.sidecar.port, "GET", "/health/ready")[1]["policy_feed"])


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_failover.py::test_decisions_and_revocations_continue_without_redis"
)
def test_moved_slots_and_a_dead_node_lose_nothing(tmp_path: Path) -> None:
    with redis.cluster(tmp_path / "redis", 3) as nodes:
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        with running_stack(tmp_path / "stack", redis_url=url, staleness=STALENESS) as stack:
            history = History(stack)
            with history.going_on():
                history.in_force()
                # Each slot goes around, and the streams that sidecars wait on with it.
                for node in (*nodes, *nodes):
                    for key in (set_key(TENANT), CHALLENGES):
                        redis.move_slot(key, nodes, node)
                history.in_force()
                assert feed(stack) == "redis"
                nodes[2].signal(signal.SIGKILL)  # it has both
                until(
                    "sidecars ask the control API", lambda: feed(stack) == "control", despite=AWAY
                )
                history.in_force()
                nodes[2].start()
                until("they follow Redis again", lambda: feed(stack) == "redis", despite=AWAY)
                history.in_force()
            assert not history.faults
            assert not history.stale()
            for each in history.asked[-3:]:
                stack.wait_shipped(each.event_id)
            assert stack.verify()["valid"]
            ids = [event["event_id"] for event in stack.events()]
            assert len(ids) == len(set(ids))
            assert {each.event_id for each in history.asked} <= set(ids)
