"""A sidecar's host is cloned with its spool, and both continue: two processes with one name, key
and instance. This is noticed, nothing is recorded twice, and everything that was answered is
accounted for: records of the second one that the log can't take are declared, and kept beside its
spool."""

from __future__ import annotations

import asyncio
import http.client
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stories.clients import Heard, client, in_thread
from tests.support.ports import free_port
from tests.support.stack import Service, Stack
from tests.support.waiting import AWAY, until

SHARED = 30
"""Records in the spool when it is cloned."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    stack.sidecar.environ["SLUICE_SIDECAR_COMPRESS"] = "always"
    try:
        yield stack.start()
    finally:
        stack.stop()


def cloned(stack: Stack) -> Service:
    """The sidecar's whole directory on another host: only its port differs."""
    here = stack.directory / "clone"
    here.mkdir()
    for name in ("spool", "cache"):
        shutil.copytree(stack.directory / name, here / name)
    for name in ("sidecar.yaml", "sidecar.key", "agent.key"):
        shutil.copy(stack.directory / name, here / name)
    port = free_port()
    return replace(
        stack.sidecar,
        name="clone",
        command=[*stack.sidecar.command[:-1], str(here / "sidecar.yaml")],
        environ={**stack.sidecar.environ, "SLUICE_SIDECAR_LISTEN": f"127.0.0.1:{port}"},
        log=here / "sidecar.log",
        port=port,
        process=None,
    )


@pytest.mark.deep(
    stands_in="tests/control_api/fleet/test_fleet.py::test_a_run_that_reports_again_after_another_is_a_duplicate"
)
async def test_a_sidecar_cloned_with_its_spool_is_noticed_and_nothing_is_doubled_or_lost(
    stack: Stack,
) -> None:
    heard = Heard()
    await asking(stack, [stack.sidecar], heard, 0.5)
    stack.control.kill()
    waiting: list[str] = []
    for _ in range(SHARED):
        status, answer = stack.evaluate()
        assert status == 200
        waiting.append(answer["event_id"])
        heard.decisions[answer["event_id"]] = answer
    stack.sidecar.kill()
    clone = cloned(stack)
    both = [stack.sidecar, clone]
    try:
        await in_thread(stack.control.start)
        for service in both:
            await in_thread(service.start)
        await asking(stack, both, heard, 12)
        (shown,) = stack.admin("GET", "/v1/sidecars")
        assert (shown["sidecar_id"], shown["duplicate"]) == ("sidecar-1", True)
        for service in both:
            until(
                "it has shipped",
                lambda s=service: figure(s, "sluice_spool_records") == 0,  # type: ignore[misc]
                despite=AWAY,
            )
        lost = sum(int(figure(service, "sluice_spool_lost_records_total")) for service in both)
        accounted_for(stack, heard, waiting, lost)
    finally:
        clone.stop()


def accounted_for(stack: Stack, heard: Heard, waiting: list[str], lost: int) -> None:
    """Every decision that a client received is in the log once, or among the `lost` that gaps
    declare. Those in the spool when it was copied are all in the log."""
    counted = Counter(event["event_id"] for event in stack.events())
    assert set(counted.values()) == {1}
    assert set(waiting) <= counted.keys()
    missing = heard.decisions.keys() - counted.keys()
    assert 0 < len(missing) <= lost < len(heard.decisions) / 2
    kept = b"".join(path.read_bytes() for path in stack.directory.glob("**/spool/conflict-*/*.seg"))
    assert all(event_id.encode() in kept for event_id in missing)
    assert stack.verify()["valid"]


async def asking(stack: Stack, services: list[Service], heard: Heard, seconds: float) -> None:
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            port = services[number % len(services)].port
            group.create_task(client(stack, number, port, stack.agent_key, heard, over, 0.02))
        await asyncio.sleep(seconds)
        over.set()


def figure(service: Service, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=5)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))
