"""A purge of half of a log while clients evaluate: what it costs them, and that nothing is lost.

    python -m tests.benchmarks.purge [EVENTS]     1,000,000 unless given, then about five minutes

On SQLite. The log is really chained, by the service's own code, with a clock that is moved; then
the service runs as a process, purges by its own hourly loop (which is told to begin at once), and
is asked by 32 connections meanwhile. The same load without a purge is the floor.
"""

import asyncio
import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from control_api.log.log_key import open_or_make
from control_api.settings import Settings, read
from control_api.store.log.chain import LogChain
from control_api.store.store import Store
from control_api.tenants.bootstrap import first_start
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.trail.record import Record, make_record
from tests.benchmarks.measure import EVALUATE, SERVER, Figure, directory, load, request
from tests.support.open_store import decision
from tests.support.ports import free_port
from tests.support.stack import POLICIES, Service, call

DAY = 86_400_000_000
AGO = 400 * DAY
BATCH = 1000
CLIENTS = 32
WITHOUT = 10.0
"""Seconds of the load without a purge."""
LONGEST = 600.0
# The service as it is, but for when its hourly loop begins.
SERVE = """\
import sys
from control_api import retention
retention.FIRST_SECONDS, retention.EVERY_SECONDS = float(sys.argv[1]), 3600.0
from control_api.__main__ import main
sys.exit(main([]))
"""


def environ(made: Path, port: int) -> dict[str, str]:
    policies = made / "policies" / "default" / "demo" / "support.yaml"
    policies.parent.mkdir(parents=True, exist_ok=True)
    policies.write_text(POLICIES)
    return {
        "SLUICE_DATA_DIR": str(made / "data"),
        "SLUICE_POLICY_DIR": str(made / "policies"),
        "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}",
        "SLUICE_SUPERADMIN_KEY": "superadmin-" + "x" * 32,
    }


async def fill(settings: Settings, old: int, young: int) -> str:
    """A log of so many decisions, old ones first; the admin's key."""
    behind = [AGO]
    clock = Clock(lambda: time.time_ns() // 1000 - behind[0], time.monotonic)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    open_or_make(settings.data_dir)
    async with asyncio.TaskGroup() as group:
        store = await Store.open(settings.database_url, clock, group, settings.database)
        _, keys = await first_start(store, settings, os.urandom)
        for count in (old, young):
            for done in range(0, count, BATCH):
                await _append(store, done, min(BATCH, count - done))
            behind[0] = 0
    await store.close()
    assert keys is not None
    return keys.admin_key


_KINDS = [
    decision(
        "ALLOW" if number % 7 else "DENY",
        agent_id=f"agt_{number % 40}",
        session_id=f"s-{number % 500}",
        user_id=f"u-{number}",
        source_id=("handbook", "contracts", "payroll")[number % 3],
    )
    for number in range(2000)
]


async def _append(store: Store, at: int, many: int) -> None:
    now = store.clock.now()
    records = [_another(_KINDS[(at + n) % len(_KINDS)], now) for n in range(many)]

    def work(connection: Connection, _: bool) -> None:
        chain = LogChain.load(connection, "default")
        for record in records:
            chain.add(record, now)
        chain.save(connection)

    await store.run(store.lane("default"), work)


def _another(record: Record, now: int) -> Record:
    cm = record.head[len(b'{"cm":') : record.head.index(b',"eid":')]
    made = uuid7(now, os.urandom(10))
    return make_record(record.kind, made, record.pub, cm, record.openings)


def purged(events: int) -> list[Figure]:
    """Half of `events` goes while `CLIENTS` connections evaluate."""
    half = events // 2
    with directory() as made:
        port = free_port()
        env = environ(made, port)
        started = time.monotonic()
        key = asyncio.run(fill(read(env), half, half))
        print(f"filled in {time.monotonic() - started:.0f} s", flush=True)
        serving = [sys.executable, "-c", SERVE, str(WITHOUT + 15)]
        service = Service("control", serving, env, made / "control.log", port, SERVER)
        service.start()
        try:
            return _measure(service, key, half, made)
        finally:
            service.kill()


def _measure(service: Service, key: str, half: int, made: Path) -> list[Figure]:
    def ask(method: str, path: str, body: object = None) -> Any:
        status, answer = call(service.port, method, path, body, key=key, timeout=120)
        assert status == 200, answer
        return answer

    def finished() -> bool:
        with sqlite3.connect(made / "data" / "sluice.db") as connection:
            found = connection.execute("SELECT finished_at FROM purges").fetchone()
        connection.close()
        return found is not None and found[0] is not None

    assert ask("GET", "/v1/audit/verify")["valid"]
    ask("PUT", "/v1/settings/retention", {"retention_days": 30})
    asked = {"agent_role": "support", "user_id": "ann", "source_id": "handbook"}
    sent = request("POST", EVALUATE, {**asked, "sensitivity_level": "low"}, key)
    floor = load(service.port, sent, CLIENTS, WITHOUT)
    assert not finished(), "the purge began before its floor was measured"
    runs, started = [], time.monotonic()
    while not finished() and time.monotonic() - started < LONGEST:
        # Each run has its own longest wait.
        run = load(service.port, sent, CLIENTS, 10)
        runs.append(run)
        print(json.dumps({name: run[name] for name in ("rate", "p99", "longest")}), flush=True)
    seconds = time.monotonic() - started
    report = ask("GET", "/v1/audit/verify")
    assert report["valid"], report
    # What was made before the first old event is as old: it goes too. What is young is all there.
    assert report["anchor"]["purged_count"] == report["first_seq"] >= half
    kept = half + sum(run["answers"] for run in (floor, *runs))
    assert 0 <= report["events"] - kept <= CLIENTS * (len(runs) + 1), (report["events"], kept)
    assert report["events"] == ask("GET", "/v1/audit/stats")["total"]
    longest = max(run["longest"] for run in runs)
    rate = sum(run["answers"] for run in runs) / sum(run["seconds"] for run in runs)
    return [
        Figure(
            f"a purge of {half:,} of {2 * half:,}, {CLIENTS} clients: longest wait",
            f"{longest:.0f} ms, {floor['longest']:.0f} ms without",
            None,
            "< 50 ms",
            longest < 50,
        ),
        Figure(
            "the same: evaluations",
            f"{rate:,.0f}/s against {floor['rate']:,.0f}/s, {seconds:.0f} s",
            rate / floor["rate"],
            "",
            True,
        ),
    ]


if __name__ == "__main__":
    for figure in purged(int(sys.argv[1]) if sys.argv[1:] else 1_000_000):
        print(figure.row(), flush=True)
