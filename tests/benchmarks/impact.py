"""How fast recorded traffic is decided again by other policies, and what it costs evaluations.

    python -m tests.benchmarks.impact [ENTRIES [DIR]]

By default 300,000 entries of 2,000 different requests, by 100 policies today and tomorrow; DIR is
kept, and used again where it exists. Entries a second of CPU time of the run's process are the
figure, since that process has the lowest priority and waits for everything else on the machine.
Beside it the floor: `orjson.loads` and SHA-256 of the same rows. The counts are compared with each
entry decided by hand: by all ten checks, one entry after the other.
"""

import asyncio
import hashlib
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil

from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, Policy, Session, TenantSettings
from policies.evaluate import evaluate, refuse
from policies.retrieval import Retrieval
from policies.sets.role import compile_role
from policies.trail.record import Record, decision_record
from tests.benchmarks import large_log
from tests.benchmarks.export import started
from tests.benchmarks.measure import EVALUATE, Figure, load, request
from tests.control_api.policy.traffic import LEVELS, as_counted, by_hand
from tests.support.control_api import asked
from tests.support.stack import Service, call

ENTRIES = 300_000
REQUESTS, ROLES = 2000, 100
RATE, KEPT = 50_000, 0.95
CONNECTIONS, SECONDS, ROUNDS = 32, 8.0, 5
ROUTE = "/v1/policies/impact"


def policies(rng: random.Random, sources: int) -> list[Policy]:
    """One policy for each role; more `sources` allow more."""
    return [
        Policy(
            f"pol_{number}",
            1,
            f"policy-{number}",
            f"role-{number}",
            (f"source-{number}-*", *(f"source-{rng.randrange(500)}" for _ in range(sources))),
            (f"source-{rng.randrange(500)}",),
            rng.choice(LEVELS),
            denied_tasks=("marketing",),
        )
        for number in range(ROLES)
    ]


def records(rng: random.Random, today: list[Policy]) -> list[Record]:
    """Decisions with all that an entry may hold; one in a hundred was made outside of the
    checks."""
    roles = [compile_role(each.agent_role, [each]) for each in today]
    made = []
    for number in range(REQUESTS):
        role, agent_id = rng.choice(roles), f"agt_{rng.randrange(50)}"
        agent = Agent(agent_id, rng.choice(["approved"] * 9 + ["suspended"]), (role.name,))  # type: ignore[arg-type]
        session = Session(f"s-{number}", "active", role.name, agent_id)
        facts = Facts(TenantSettings("default"), Key("key_1", "evaluate"), agent, session, role, 7)
        source = rng.choice(role.clauses[0].allowed_sources + role.clauses[0].denied_sources)
        retrieval = Retrieval(
            role.name,
            "ann@example.com",
            source.replace("*", "a"),
            rng.choice(LEVELS),
            f"s-{number}",
            rng.choice((None, "report", "marketing")),
            agent_id,
            "what are the terms of contract 4711?",
        )
        outside = number % 100 == 0
        decision = refuse("policy_set_stale", "old") if outside else evaluate(retrieval, facts)
        given = None if outside else facts
        made.append(decision_record(retrieval, decision, given, event_id="event-x", salt=b"s" * 32))
    return made


def bodies(policies: list[Policy]) -> list[dict[str, Any]]:
    wire = [each.to_wire() for each in policies]
    return [
        {name: each[name] for name in each if name not in ("policy_id", "version")} for each in wire
    ]


class Run:
    """One run, and the CPU time and memory of its process."""

    def __init__(self, service: Service, key: str, tomorrow: list[Policy]) -> None:
        self._port, self._key = service.port, key
        before = set(psutil.Process(service.pid).children())
        begun = time.perf_counter()
        status, answer = self._call("POST", ROUTE, {"policies": bodies(tomorrow)})
        assert status == 202, answer
        self.path = f"{ROUTE}/{answer['impact_id']}"
        self.cpu = self.memory = self.seconds = 0.0
        self.answer: dict[str, Any] = {"state": "running"}
        while not (born := set(psutil.Process(service.pid).children()) - before):
            time.sleep(0.01)
        self._process = born.pop()
        self._thread = threading.Thread(target=self._watch, args=(begun,))
        self._thread.start()

    def _call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return call(self._port, method, path, body, key=self._key)

    def _watch(self, begun: float) -> None:
        while self.answer["state"] == "running":
            try:
                self.cpu = sum(self._process.cpu_times()[:2])
                self.memory = max(self.memory, self._process.memory_info().rss)
            except psutil.NoSuchProcess:
                pass
            time.sleep(0.2)
            _, self.answer = self._call("GET", self.path)
        self.seconds = time.perf_counter() - begun

    def wait(self) -> dict[str, Any]:
        self._thread.join()
        return self.answer

    def cancel(self) -> dict[str, Any]:
        self._call("DELETE", self.path)
        return self.wait()


def floor(database: Path) -> float:
    """CPU microseconds an entry to read, decode and hash it."""
    begun, count = time.process_time(), 0
    for raw in _entries(database):
        orjson.loads(raw)
        hashlib.sha256(b"\0" + raw).digest()
        count += 1
    return (time.process_time() - begun) / count * 1e6


def _entries(database: Path) -> Iterator[bytes]:
    connection = sqlite3.connect(database)
    query = "SELECT entry FROM log_entries WHERE tenant_id = 'default' ORDER BY seq"
    for (raw,) in connection.execute(query):
        yield bytes(raw)
    connection.close()


def measured(made: Path, tomorrow: list[Policy]) -> None:
    service, key = started(made)
    database = made / "data" / "sluice.db"
    try:
        run = Run(service, key, tomorrow)
        found = run.wait()
        assert found["state"] == "done", found
        took = run.cpu / found["entries"] * 1e6
        print(
            f"{found['entries']:,} entries in {run.seconds:.1f} s, {took:.1f} µs of CPU each; "
            f"{run.memory / 2**20:.0f} MiB"
        )
        rate, base = 1e6 / took, floor(database)
        figure = Figure("impact, CPU of its process", f"{rate:,.0f} entries/s", base / took,
                        f">= {RATE:,}/s", rate >= RATE)  # fmt: skip
        print(figure.row())
        entries = map(orjson.loads, _entries(database))
        some = (each for each, _ in zip(entries, range(found["until_seq"]), strict=False))
        expected = by_hand(some, bodies(tomorrow))
        same = as_counted(found)
        if not found["left_out"] and not found["renamed"]["left_out"]:
            assert same == expected, "the counts differ from those by hand"
        assert same["counts"] == expected["counts"]
        assert same["unreplayable"] == expected["unreplayable"]
        print(f"the counts are those by hand: {expected['counts']}, {expected['unreplayable']}")
        evaluations(service, key, tomorrow)
    finally:
        service.stop()


def evaluations(service: Service, key: str, tomorrow: list[Policy]) -> None:
    """Evaluations with a run beside them and without, in turn: how many a second, and what each
    costs the service, which a busy machine changes less."""
    sent, process = request("POST", EVALUATE, asked(), key), psutil.Process(service.pid)

    def loaded() -> tuple[float, float]:
        """Evaluations a second, and CPU microseconds of the service for each."""
        before = sum(process.cpu_times()[:2])
        rate: float = load(service.port, sent, CONNECTIONS, SECONDS)["rate"]
        return rate, (sum(process.cpu_times()[:2]) - before) / (rate * SECONDS) * 1e6

    load(service.port, sent, CONNECTIONS, 2.0)
    rates, costs, moved = [], [], []
    for _ in range(ROUNDS):
        alone = loaded()
        run = Run(service, key, tomorrow)
        beside = loaded()
        found = run.cancel()
        assert found["state"] == "cancelled", "the log is too short: the run ended meanwhile"
        moved.append(found["entries"] / SECONDS)
        rates.append(beside[0] / alone[0])
        costs.append(alone[1] / beside[1])
        shown = " and ".join(f"{rate:,.0f}/s at {cost:.0f} µs" for rate, cost in (alone, beside))
        print(f"  evaluate alone and beside a run: {shown}", flush=True)
    value = f"{statistics.median(moved):,.0f} entries/s meanwhile"
    for measure, ratios in (("rate beside a run", rates), ("by CPU of the service", costs)):
        ratio = statistics.median(ratios)
        print(Figure(f"evaluate, {measure}", value, ratio, f">= {KEPT}", ratio >= KEPT).row())


def main() -> None:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    made = kept or Path(tempfile.mkdtemp(prefix="sluice-impact-"))
    rng = random.Random(6)
    today, tomorrow = policies(rng, 12), policies(rng, 12)
    try:
        if not (made / "data").exists():
            asyncio.run(large_log.make(made, entries, records(rng, today)))
        measured(made, tomorrow)
    finally:
        if kept is None:
            shutil.rmtree(made)


if __name__ == "__main__":
    main()
