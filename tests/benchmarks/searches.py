"""What AuthZEN searches cost the decisions beside them: `python -m tests.benchmarks.searches
[REQUESTS [subject|resource|action …]]`.

One sidecar in this process, with 2,000 agents of two roles each. The mixed requests of `mixed` go
through its port without a network, in turns with and without searches that follow one another on
four connections. A rate is evaluations by CPU second of all threads, searches included: it is the
share that evaluations keep. The ratio is the median of the ratios pair by pair.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import uvloop

from policies.definitions.model import Agent, Key
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import agent_document, agent_name, key_document, key_name
from tests.benchmarks import mixed
from tests.benchmarks.candidates import Connection, Turn, drained, publish
from tests.benchmarks.measure import CORES, Figure, directory
from tests.support.fake_control_api import EVALUATE_KEY, fake_control_api
from tests.support.sidecar import RunningSidecar, running_sidecar

ROUNDS = 9
AGENTS = 2000
SEARCHERS = 4
ADMIN_KEY = make_key(b"a" * 32)
SUBJECT = {"type": "agent", "id": "agent-0"}
ACTION = {"name": "read"}
RESOURCE = {"type": "source", "id": "records-1-0", "properties": {"sensitivity": "low"}}
SEARCHES = {
    "subject": {"subject": {"type": "agent"}, "action": ACTION, "resource": RESOURCE},
    "resource": {
        "subject": SUBJECT,
        "action": ACTION,
        "resource": {"type": "source", "properties": {"sensitivity": "low"}},
    },
    "action": {"subject": SUBJECT, "resource": RESOURCE},
}


class Searchers(Turn):
    """Searches until they are stopped."""

    def __init__(self, kind: str) -> None:
        super().__init__([request(kind)])
        self.answered = 0
        self.searching = False

    def next(self) -> bytes | None:
        if not self.searching:
            return None
        self.answered += 1
        return next(self._requests)


def request(kind: str) -> bytes:
    body = orjson.dumps(SEARCHES[kind])
    head = (
        f"POST /access/v1/search/{kind} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {ADMIN_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def ready(folder: Path) -> AsyncIterator[RunningSidecar]:
    async with fake_control_api() as control:
        publish(control, None)
        agents = [
            Agent(
                f"agt-{n}", "approved", (f"role-{n % mixed.ROLES}", f"role-{(n + 1) % mixed.ROLES}")
            )
            for n in range(AGENTS)
        ]
        changes: dict[str, bytes | None] = {
            agent_name(agent.agent_id): agent_document(agent) for agent in agents
        }
        changes[key_name(key_digest(ADMIN_KEY))] = key_document(Key("key_a", "admin"))
        control.publish(changes)
        async with running_sidecar(folder, control) as running:
            await running.follows(control.revision)
            yield running


async def figure(running: RunningSidecar, kind: str, connections: int, count: int) -> Figure:
    turn = Turn(mixed.evaluations(EVALUATE_KEY).requests)
    evaluating = [Connection(running.ports[0], turn) for _ in range(connections)]
    searchers = Searchers(kind)
    searching = [Connection(running.ports[0], searchers) for _ in range(SEARCHERS)]
    await turn.take(evaluating, count)
    pairs = []
    answered = 0
    for number in range(ROUNDS):
        rates = {}
        # Each goes first in every other round.
        for beside in (False, True) if number % 2 else (True, False):
            searchers.searching = beside
            searchers.answered = 0
            for each in searching if beside else ():
                each.send()
            started = time.perf_counter()
            by_cpu = await turn.take(evaluating, count)
            by_time = count / (time.perf_counter() - started)
            rates[beside] = by_time if connections == 1 else by_cpu
            searchers.searching = False
            answered += searchers.answered
            # Those that were under way are answered before the next round begins.
            await asyncio.sleep(0.2)
        pairs.append((rates[False], rates[True]))
        await drained(running)
    ratio = statistics.median(beside / alone for alone, beside in pairs)
    alone, beside = (statistics.median(each) for each in zip(*pairs, strict=True))
    per = "second" if connections == 1 else "CPU second"
    value = f"{beside:,.0f} against {alone:,.0f} a {per} ({answered} searches)"
    name = f"evaluate beside {kind} searches, {connections} connections"
    return Figure(name, value, ratio, ">= 0.9", ratio >= 0.9)


async def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else mixed.REQUESTS
    print(f"{len(CORES)} cores, at most {most} requests a round, {ROUNDS} rounds", flush=True)
    with directory() as folder:
        async with ready(folder) as running:
            for kind in sys.argv[2:] or SEARCHES:
                for connections, share in ((1, 4), (16, 1), (64, 1)):
                    # Fewer at once take longer.
                    count = most // share
                    print((await figure(running, kind, connections, count)).row(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
