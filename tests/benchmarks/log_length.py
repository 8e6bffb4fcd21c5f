"""What operations cost when the log is long: the same requests on 1,000 events and on a million.

    python -m tests.benchmarks.log_length [EVENTS]

The events go through the real path of a sidecar's records, in this process; then the control API is
started on the file and asked, one request after another over one connection. About six minutes.
"""

import asyncio
import http.client
import json
import statistics
import sys
import time
from pathlib import Path

from control_api.log.ingest import ingest
from tests.benchmarks.measure import EVALUATE, SERVER, Figure, directory
from tests.support.open_store import TENANT, Spool, decision, opened
from tests.support.stack import Stack

FEW, MANY = 1_000, 1_000_000
BATCH = 1_000
ASKED = 400
MOST = 1.3
AGENTS = 50


def asked_of(stack: Stack) -> dict[str, tuple[str, str, object]]:
    return {
        "events?limit=1": ("GET", "/v1/audit/events?limit=1", None),
        "stats": ("GET", "/v1/audit/stats", None),
        "agent detail": ("GET", f"/v1/agents/{stack.agent_id}", None),
        "registry counts": ("GET", "/v1/agents/stats/summary", None),
        "evaluate": ("POST", EVALUATE, stack.ask()),
    }


async def fill(directory: Path, spool: Spool, events: int) -> None:
    """Decisions of many agents in many sessions on many sources."""
    url = f"sqlite+aiosqlite:///{directory / 'data' / 'sluice.db'}"
    async with opened(url) as world:
        for first in range(0, events, BATCH):
            batch = []
            for number in range(first, min(first + BATCH, events)):
                agent = "agt_story" if number % AGENTS == 0 else f"agent-{number % AGENTS}"
                record = decision(
                    "DENY" if number % 7 == 0 else "ALLOW",
                    agent_id=agent,
                    session_id=f"s-{number // 500}",
                    source_id=f"source-{number % 40}",
                    query=None,
                )
                batch.append(spool.record(record))
            await ingest(world.store, TENANT, spool.source, spool.instance, batch)


def measured(stack: Stack) -> dict[str, float]:
    """Median milliseconds of each request."""
    stack.control.start()
    connection = http.client.HTTPConnection("127.0.0.1", stack.control.port, timeout=60)
    taken: dict[str, list[float]] = {}
    for _ in range(ASKED):
        # Turn about: whatever the machine does meanwhile, it does to all of them.
        for name, (method, path, body) in asked_of(stack).items():
            sent = None if body is None else json.dumps(body)
            headers = {"X-API-Key": stack.admin_key}
            if sent is not None:
                headers["Content-Type"] = "application/json"
            started = time.perf_counter()
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            answer.read()
            taken.setdefault(name, []).append((time.perf_counter() - started) * 1000)
            assert answer.status == 200, (name, answer.status)
    connection.close()
    stack.control.stop()
    return {name: statistics.median(each[20:]) for name, each in taken.items()}


def figures(many: int) -> list[Figure]:
    with directory() as made:
        stack = Stack(made, control_cores=SERVER)
        stack.start_control()
        stack.prepare()
        stack.control.stop()
        spool = Spool()
        asyncio.run(fill(made, spool, FEW))
        few = measured(stack)
        started = time.monotonic()
        asyncio.run(fill(made, spool, many - FEW))
        print(f"filled with {many:,} events in {time.monotonic() - started:.0f} s", flush=True)
        long = measured(stack)
    return [
        Figure(
            f"{name}, {many:,} against {FEW:,} events",
            f"{long[name]:.3f} ms against {few[name]:.3f} ms",
            long[name] / few[name],
            f"<= {MOST}",
            long[name] / few[name] <= MOST,
        )
        for name in few
    ]


if __name__ == "__main__":
    for figure in figures(int(sys.argv[1]) if sys.argv[1:] else MANY):
        print(figure.row(), flush=True)
