"""What alert rules cost, and how soon they fire.

    python -m tests.benchmarks.alerting

First 2,000 events a second with a rule of each type: how long from the event that reached the
threshold to the firing, and whether each fires once. Then the throughput of evaluations with rules
beside that without, turn about. About a minute.
"""

import asyncio
import time
from datetime import datetime
from typing import Any

import aiohttp

from tests.benchmarks.measure import EVALUATE, SERVER, Figure, directory, load, request, turn_about
from tests.support.stack import Stack

RATE, CLIENTS, SECONDS = 2_000, 40, 12.0
CALM = 3.0
"""Seconds before the denials begin."""
DENIALS, NEW_SOURCES, MISMATCHES, PERCENT = 500, 20, 100, 10
RULES = {
    "denial_spike": DENIALS,
    "high_deny_rate": PERCENT,
    "isolation_violation": MISMATCHES,
    "new_source_access": NEW_SOURCES,
}


class Heard:
    """The responses, and when each threshold was reached."""

    def __init__(self) -> None:
        self.answers = self.denied = self.mismatched = 0
        self.sources: set[str] = set()
        self.reached: dict[str, float] = {}

    def take(self, source: str, answer: dict[str, Any]) -> None:
        self.answers += 1
        if answer["decision"] == "ALLOW":
            self.sources.add(source)
        else:
            self.denied += 1
            self.mismatched += answer["policy_name"] == "session_agent_mismatch"
        values = {
            "denial_spike": self.denied,
            "high_deny_rate": self.denied * 100 / self.answers,
            "isolation_violation": self.mismatched,
            "new_source_access": len(self.sources),
        }
        for name, value in values.items():
            if value >= RULES[name] and self.answers >= 1000:
                self.reached.setdefault(name, time.time())


async def client(stack: Stack, number: int, heard: Heard, began: float) -> None:
    """Send one request after the other, at this client's share of the rate."""
    url = f"http://127.0.0.1:{stack.control.port}{EVALUATE}"
    headers = {"X-API-Key": stack.agent_key}
    async with aiohttp.ClientSession(headers=headers) as session:
        sent = 0
        while (now := time.monotonic()) < began + SECONDS:
            due = began + sent * CLIENTS / RATE
            if due > now:
                await asyncio.sleep(due - now)
            sent += 1
            source, fields = "handbook", {}
            if time.monotonic() > began + CALM:
                source = ("payroll", f"rest://files/{sent % 50}", "handbook", "payroll")[sent % 4]
                if sent % 4 == 3:
                    source, fields = "handbook", {"session_id": "owned", "agent_id": None}
            async with session.post(url, json=stack.ask(source_id=source, **fields)) as answer:
                heard.take(source, await answer.json())


async def stream(stack: Stack) -> Heard:
    heard, began = Heard(), time.monotonic()
    await asyncio.gather(*(client(stack, number, heard, began) for number in range(CLIENTS)))
    return heard


def firing() -> list[Figure]:
    with directory() as made:
        stack = Stack(made, control_cores=SERVER)
        try:
            stack.start_control()
            stack.prepare()
            stack.admin("POST", EVALUATE, stack.ask(session_id="owned"))
            make_rules(stack, RULES)
            heard = asyncio.run(stream(stack))
            time.sleep(2)
            fired = stack.admin("GET", "/v1/alerts/fired")
        finally:
            stack.control.stop()
    rows = []
    for name in RULES:
        times = [each["fired_at"] for each in fired if each["rule_type"] == name]
        at = datetime.fromisoformat(times[-1]).timestamp() if times else float("inf")
        late = at - heard.reached[name]
        value = f"{late:.2f} s after, {len(times)} time(s)"
        reached = late <= 2 and len(times) == 1
        rows.append(
            Figure(
                f"{name} at {heard.answers / SECONDS:,.0f}/s", value, None, "<= 2 s, once", reached
            )
        )
    return rows


def make_rules(stack: Stack, rules: dict[str, int]) -> None:
    for name, threshold in rules.items():
        body = {"name": name, "rule_type": name, "threshold": threshold, "min_events": 1000}
        stack.admin("POST", "/v1/alerts/rules", body)


def throughput(seconds: float, rounds: int) -> list[Figure]:
    with directory() as made:
        stacks = [Stack(made / name, control_cores=SERVER) for name in ("with", "without")]
        try:
            for stack in stacks:
                stack.start_control()
                stack.prepare()
            make_rules(stacks[0], {**dict.fromkeys(RULES, 10**8), "high_deny_rate": 100})
            runs = [
                lambda stack=stack: load(
                    stack.control.port,
                    request("POST", EVALUATE, stack.ask(), stack.agent_key),
                    64,
                    seconds,
                )
                for stack in stacks
            ]
            ours, theirs, ratio = turn_about(runs[0], runs[1], rounds)
        finally:
            for stack in stacks:
                stack.control.stop()
    value = f"{ours:,.0f}/s against {theirs:,.0f}/s"
    return [
        Figure("control evaluate with four rules, without", value, ratio, ">= 0.95", ratio >= 0.95)
    ]


if __name__ == "__main__":
    for figure in (*firing(), *throughput(4, 5)):
        print(figure.row(), flush=True)
