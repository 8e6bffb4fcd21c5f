"""What one control process takes in: batches of 4 senders for 1,000 tenants, on PostgreSQL.

    python -m tests.benchmarks.ingest [SECONDS [TENANTS [RECORDS A BATCH]]]

A real process on a core of its own; the senders play sidecars (`ingest_sender`). Beside it one
client asks `/health` (how long the event loop is held) and one evaluates, in a closed loop with
pauses. Floor: the same rows by a bare COPY on one connection, in batches of the same size. About a
minute and a half.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg

from control_api.store.migrate import migrate
from control_api.store.schema.log import log_entries, openings
from tests.benchmarks.measure import EVALUATE, MIB, SERVER, Figure, directory
from tests.benchmarks.postgresql import copied, server
from tests.support import postgres
from tests.support.stack import ROOT, Service, Stack, call

SENDERS = 4
AT_ONCE = 2
"""Posts that one sender has in progress."""
SECONDS, TENANTS, RECORDS = 30.0, 1000, 512
FLOOR_ROWS = 20_000
TICK = os.sysconf("SC_CLK_TCK")


def made_tenants(stack: Stack, many: int) -> list[str]:
    """A key of scope `sidecar` for each tenant."""
    first = json.loads((stack.directory / "data" / "first-start.json").read_text())
    key, port = first["superadmin_key"], stack.control.port

    def make(number: int) -> str:
        status, tenant = call(port, "POST", "/v1/admin/tenants", {"name": f"t-{number}"}, key=key)
        assert status == 201, tenant
        path = f"/v1/admin/tenants/{tenant['tenant_id']}/keys"
        asked = {"name": "sidecar", "scope": "sidecar", "agent_ids": ["*"]}
        status, made = call(port, "POST", path, asked, key=key)
        assert status == 201, made
        return str(made["key"])

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(make, range(many)))


class Senders:
    """The sender processes, started one after another, so that each tenant's log has begun."""

    def __init__(self, port: int, keys: list[str], size: int) -> None:
        self._all = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.ingest_sender"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            for _ in range(SENDERS)
        ]
        for number, process in enumerate(self._all):
            given = {
                "port": port,
                "source": f"sidecar-{number}",
                "keys": keys[number::SENDERS],
                "size": size,
                "at_once": AT_ONCE,
            }
            self._say(process, json.dumps(given))
        for process in self._all:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        for process in self._all:
            self._say(process, "")

    def end(self) -> list[dict[str, Any]]:
        """The results of each sender."""
        told = [json.loads(process.communicate()[0]) for process in self._all]
        wrong = [each for one in told for each in one["wrong"]]
        if wrong:
            raise SystemExit(f"not taken: {wrong[:3]}")
        return told

    def _say(self, process: "subprocess.Popen[str]", words: str) -> None:
        assert process.stdin is not None
        process.stdin.write(words + "\n")
        process.stdin.flush()


class Beside(threading.Thread):
    """One client in a closed loop with pauses. Returns milliseconds per response."""

    def __init__(self, port: int, asked: tuple[str, str, object, str | None]) -> None:
        super().__init__(daemon=True)
        self._port, self._asked = port, asked
        self.took: list[float] = []
        self.over = False

    def run(self) -> None:
        method, path, body, key = self._asked
        while not self.over:
            started = time.perf_counter()
            status, answer = call(self._port, method, path, body, key=key)
            assert status == 200, answer
            self.took.append((time.perf_counter() - started) * 1000)
            time.sleep(0.05)

    def told(self) -> str:
        self.over = True
        self.join()
        took = sorted(self.took)
        p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
        return f"p50 {p50:.0f}, p99 {p99:.0f}, longest {took[-1]:.0f} ms"


def cpu(service: Service) -> float:
    """CPU seconds of the process so far."""
    with open(f"/proc/{service.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


async def floor(url: str, size: int) -> tuple[float, float]:
    """Records per second by COPY, of the rows just received, and bytes per entry."""
    reader = await asyncpg.connect(postgres.unbound(url).replace("+asyncpg", ""))
    rows = []
    for table in (log_entries, openings):
        names = ", ".join(table.c.keys())
        found = await reader.fetch(
            f"SELECT {names} FROM {table.name} ORDER BY tenant_id, seq LIMIT {FLOOR_ROWS}"
        )
        rows.append([tuple(row) for row in found])
    for table in (log_entries, openings):
        await reader.execute(f"CREATE TABLE bare_{table.name} (LIKE {table.name} INCLUDING ALL)")
    sizes = [size] * (len(rows[0]) // size)
    rate = await copied(reader, rows, sizes, "bare_")
    await reader.close()
    return rate * size * len(sizes) / len(rows[0]), statistics.mean(len(r[-2]) for r in rows[0])


def measured(stack: Stack, url: str, seconds: float, many: int, size: int) -> Iterator[Figure]:
    keys = made_tenants(stack, many)
    control = stack.control
    senders = Senders(control.port, keys, size)
    beside = Beside(control.port, ("GET", "/health", None, None))
    evaluating = Beside(control.port, ("POST", EVALUATE, stack.ask(), stack.agent_key))
    used, resident, samples = cpu(control), control.resident(), []
    senders.begin()
    beside.start()
    evaluating.start()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        time.sleep(seconds / 10)
        samples.append(control.resident())
    told = senders.end()
    taken, used = time.perf_counter() - started, cpu(control) - used
    records = sum(each["records"] for each in told)
    posts = sorted(one for each in told for one in each["took"])
    rate, each = records / taken, used / records * 1e6
    bare, entry = asyncio.run(floor(url, size))
    held, asked = beside.told(), evaluating.told()
    name = f"ingest, {SENDERS} senders, {many:,} tenants, {size} a batch"
    value = f"{rate:,.0f}/s, {each:.1f} µs CPU; COPY {bare:,.0f}/s"
    yield Figure(name, value, rate / bare, ">= 15,000/s", rate >= 15_000)
    sent = told[0]["b"]
    print(f"  process busy {used / taken:.2f}; {sent:,.0f} bytes sent, {entry:,.0f} an entry")
    print(
        f"  a post: p50 {posts[len(posts) // 2]:.0f}, longest {posts[-1]:.0f} ms; of {len(posts)}"
    )
    print(f"  beside it: /health {held}; evaluate {asked}")
    first, last, most = (each / MIB for each in (samples[2], samples[-1], max(samples)))
    grown = f"{resident / MIB:.0f} before, {first:.0f} at 3/10, {last:.0f} at the end"
    value = f"{most:.0f} MiB at most; {grown}"
    yield Figure("the same, resident memory", value, last / first, "flat", last / first < 1.05)


def figures(seconds: float, many: int, size: int) -> Iterator[Figure]:
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, every - SERVER or every)  # where the database is, too
    with server() as started, started.database() as url, directory() as place:
        serving = postgres.serving(url)
        asyncio.run(migrate(url, serving))
        stack = Stack(place, control_cores=SERVER, database_url=serving)
        try:
            stack.start_control()
            stack.prepare()
            yield from measured(stack, url, seconds, many, size)
            assert stack.verify()["valid"]
        finally:
            stack.stop()
            os.sched_setaffinity(0, every)


def main() -> None:
    given = sys.argv[1:]
    seconds = float(given[0]) if given else SECONDS
    many = int(given[1]) if len(given) > 1 else TENANTS
    size = int(given[2]) if len(given) > 2 else RECORDS
    for figure in figures(seconds, many, size):
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
