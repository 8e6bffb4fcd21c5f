"""Many clients that keep asking, whatever happens to the services, and remember every response."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from tests.support.stack import Stack
from tests.support.waiting import PATIENCE

# What a client of a service that is killed sees: no answer. Anything else is a finding.
NO_ANSWER = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, asyncio.TimeoutError)


@dataclass
class Heard:
    """Every decision that a client received, by event id, and how many requests failed."""

    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    unanswered: int = 0
    refused: Counter[int] = field(default_factory=Counter)


async def client(
    stack: Stack, number: int, port: int, key: str, heard: Heard, over: asyncio.Event, rest: float
) -> None:
    """Ask again and again, `rest` seconds apart: for an ALLOW and a DENY in turn."""
    url = f"http://127.0.0.1:{port}/v1/context/evaluate"
    asked = 0
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(headers={"X-API-Key": key}, timeout=timeout) as session:
        while not over.is_set():
            await asyncio.sleep(rest)
            asked += 1
            source = "handbook" if asked % 3 else "payroll"
            body = stack.ask(source_id=source, user_id=f"user-{number}-{asked}")
            try:
                async with session.post(url, json=body) as answer:
                    said = await answer.json()
                    if answer.status == 200:
                        assert said["event_id"] not in heard.decisions
                        heard.decisions[said["event_id"]] = said
                    else:
                        heard.refused[answer.status] += 1
                        await asyncio.sleep(0.02)
            except NO_ANSWER:
                heard.unanswered += 1
                await asyncio.sleep(0.02)


async def while_asking(
    stack: Stack,
    doing: Callable[[], Awaitable[None]],
    *,
    sidecar: int = 32,
    control: int = 0,
    rest: float = 0,
) -> Heard:
    """The responses that clients of one service received while `doing` ran."""
    heard, over = Heard(), asyncio.Event()
    ports = [stack.sidecar.port] * sidecar + [stack.control.port] * control
    async with asyncio.TaskGroup() as group:
        for number, port in enumerate(ports):
            group.create_task(client(stack, number, port, stack.agent_key, heard, over, rest))
        try:
            await doing()
        finally:
            over.set()
    return heard


async def in_thread(work: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


async def pause(draw: Random, most: float) -> None:
    await asyncio.sleep(draw.uniform(0.05, most))  # any moment is as good as another


def each_exactly_once(stack: Stack, heard: Heard) -> list[dict[str, Any]]:
    """Read everything back: every decision that a client received is in the log once, unchanged,
    and the chain verifies. Returns the log's events, newest first."""
    events = list(stack.events())
    counted = Counter(event["event_id"] for event in events)
    twice = [event_id for event_id, count in counted.items() if count > 1]
    assert not twice, f"recorded twice: {twice[:3]}"
    missing = heard.decisions.keys() - counted.keys()
    assert not missing, f"{len(missing)} of {len(heard.decisions)} answered and not recorded"
    for event in events:
        answered = heard.decisions.get(event["event_id"])
        if answered is not None:
            assert {name: event[name] for name in answered} == answered
    report = stack.verify()
    assert report["valid"], report
    assert report["events"] == len(events)
    return events
