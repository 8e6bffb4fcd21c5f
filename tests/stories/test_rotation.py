"""A key is rotated while 32 clients call with it: there are never two valid keys, or none."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import aiohttp

from tests.stories.clients import in_thread
from tests.support import waiting
from tests.support.stack import Stack

CLIENTS = 32
ROTATIONS = 12
REACH = waiting.PATIENCE
"""How long a sidecar may take to hear of a new key. `CONTRACT.md`, Incident controls, gives it a
second, but the machine may be busy."""


class Shared:
    """The key that clients use, and when each earlier key was confirmed to be revoked."""

    def __init__(self, key: str) -> None:
        self.live = key
        self.rotating = False
        """Whether a rotation is under way: the old key is revoked before the response arrives."""
        self.died: dict[str, float] = {}


async def client(
    stack: Stack, port: int, reach: float, shared: Shared, over: asyncio.Event
) -> list[str]:
    """What broke the promise."""
    url = f"http://127.0.0.1:{port}/v1/context/evaluate"
    findings: list[str] = []
    async with aiohttp.ClientSession() as session:

        async def status(key: str) -> int:
            async with session.post(url, json=stack.ask(), headers={"X-API-Key": key}) as answer:
                await answer.read()
                return answer.status

        while not over.is_set():
            key, sent, settled = shared.live, time.monotonic(), not shared.rotating
            answered = await status(key)
            settled = settled and not shared.rotating
            died = shared.died.get(key)
            if answered == 403 and settled and shared.live == key and died is None:
                # It was live all the time. A sidecar may have to hear of it.
                end = sent + reach
                while answered == 403 and shared.live == key and time.monotonic() < end:
                    await asyncio.sleep(0.02)
                    answered = await status(key)
                if answered == 403 and shared.live == key:
                    findings.append(f"the live key was refused by port {port}")
            elif answered == 200 and died is not None and sent > died + reach:
                findings.append(f"a dead key was accepted by port {port}")
            elif answered not in (200, 403):
                findings.append(f"answered {answered}")
            await asyncio.sleep(0)
    return findings


async def refused(stack: Stack, port: int, dead: str) -> bool:
    url = f"http://127.0.0.1:{port}/v1/context/evaluate"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=stack.ask(), headers={"X-API-Key": dead}) as answer,
    ):
        return answer.status == 403


async def rotate(stack: Stack, shared: Shared, key_id: str) -> None:
    for _ in range(ROTATIONS):
        await asyncio.sleep(0.3)
        old = shared.live
        made: dict[str, str] = {}

        def once(made: dict[str, str] = made, key_id: str = key_id) -> None:
            made |= stack.admin("POST", f"/v1/keys/{key_id}/rotate")

        shared.rotating = True
        await in_thread(once)
        shared.died[old] = time.monotonic()
        assert await refused(stack, stack.control.port, old), "from the moment it was answered"
        # The sidecar may hear a moment later: only then are its clients told.
        key_id = made["key_id"]
        shared.live = made["key"]
        shared.rotating = False


async def test_a_rotation_under_load_refuses_no_live_key_and_accepts_no_dead_one(
    stack: Stack,
) -> None:
    (row,) = [row for row in stack.admin("GET", "/v1/keys") if row["name"] == "agent"]
    shared, over = Shared(stack.agent_key), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(client(stack, port, reach, shared, over))
            for port, reach in ((stack.control.port, 0.0), (stack.sidecar.port, REACH))
            for _ in range(CLIENTS // 2)
        ]
        await rotate(stack, shared, row["key_id"])
        # The clients go on with the last key until the sidecar knows every other one to be dead.
        for dead in shared.died:
            there = partial(refused, stack, stack.sidecar.port, dead)
            await waiting.until_async("a dead key is refused", there)
        over.set()
    assert [finding for task in tasks for finding in task.result()] == []
    assert stack.verify()["valid"]
