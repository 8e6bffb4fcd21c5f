"""How fast a log is exported, by the service and `sluice export` together, and what it costs
evaluations meanwhile.

    python -m tests.benchmarks.export [DIR | ENTRIES]

DIR is what `tests.benchmarks.large_log` made; by default a log of 300,000 entries is made and
removed. Beside it, on the same machine: the floor, which reads the same rows with SQLite's driver
and writes their bytes, and a dump of the same two tables by the SQLite shell's method.
"""

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import large_log
from tests.benchmarks.measure import EVALUATE, Figure, load, request
from tests.support.control_api import asked
from tests.support.ports import free_port
from tests.support.stack import POLICIES, Service, call

ROOT = Path(__file__).parents[2]
ENTRIES = 300_000
FLOOR = 300_000
"""The most entries that the floor and the dump are measured on."""
RATE, KEPT = 100_000, 0.95
CONNECTIONS = 32
SECONDS = 8.0
SUPERADMIN = "superadmin-" + "x" * 32


def started(made: Path) -> tuple[Service, str]:
    """The control API on a data directory, and an admin key."""
    port = free_port()
    policies = made / "policies" / "default" / "demo" / "support.yaml"
    policies.parent.mkdir(parents=True, exist_ok=True)
    policies.write_text(POLICIES)
    environ = {
        "SLUICE_DATA_DIR": str(made / "data"),
        "SLUICE_POLICY_DIR": str(made / "policies"),
        "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}",
        "SLUICE_SUPERADMIN_KEY": SUPERADMIN,
    }
    command = [sys.executable, "-m", "control_api", "serve"]
    service = Service("control", command, environ, made / "control.log", port)
    service.start()
    wanted = {"name": "benchmark", "scope": "admin"}
    status, key = call(port, "POST", "/v1/admin/tenants/default/keys", wanted, key=SUPERADMIN)
    assert status == 201, key
    return service, key["key"]


class Export:
    """One run of `sluice export`, and the most memory that it and the service took."""

    def __init__(self, service: Service, key_file: Path, target: Path, *words: str) -> None:
        url = f"http://127.0.0.1:{service.port}"
        command = [sys.executable, "-m", "deploy.command", "export", "-o", str(target), "--json"]
        command += ["--url", url, "--key-file", str(key_file), *words]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._started = time.perf_counter()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
        self._watched = [psutil.Process(self._process.pid), psutil.Process(service.pid)]
        self.before = self._watched[1].memory_info().rss
        self.cpu = [0.0, 0.0]
        self._spent = [sum(each.cpu_times()[:2]) for each in self._watched]
        self.most = [0, 0]
        self.seconds = 0.0
        self.answer: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while self._process.poll() is None:
            for at, process in enumerate(self._watched):
                try:
                    self.most[at] = max(self.most[at], process.memory_info().rss)
                    self.cpu[at] = sum(process.cpu_times()[:2]) - self._spent[at]
                except psutil.NoSuchProcess:
                    break
            time.sleep(0.05)
        self.seconds = time.perf_counter() - self._started

    def wait(self) -> "Export":
        out, _ = self._process.communicate()
        self._thread.join()
        assert self._process.returncode == 0
        self.answer = json.loads(out)
        return self

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()


def floor(database: Path, target: Path, entries: int) -> float:
    """Entries a second that one process reads, joins, hashes and writes, without a service."""
    connection = sqlite3.connect(database)
    digest, rows, begun = hashlib.sha256(), 0, time.perf_counter()
    with target.open("wb") as file:
        found = connection.execute(_ROWS, (entries,))
        while part := found.fetchmany(1000):
            lines = b"".join([b'{"entry":%b,"openings":%b}\n' % each for each in part])
            digest.update(lines)
            file.write(lines)
            rows += len(part)
        os.fsync(file.fileno())
    connection.close()
    return rows / (time.perf_counter() - begun)


def dump(database: Path, target: Path, entries: int) -> float:
    """Entries a second of a dump of the same rows as SQL, as `sqlite3 .dump` writes them."""
    connection = sqlite3.connect(database)
    begun = time.perf_counter()
    with target.open("w") as file:
        for table in ("log_entries", "openings"):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            quoted = "||','||".join(f"quote({name})" for name in names)
            query = f"SELECT {quoted} FROM {table} WHERE seq < ?"
            for (values,) in connection.execute(query, (entries,)):
                file.write(f"INSERT INTO {table} VALUES({values});\n")
        file.flush()
        os.fsync(file.fileno())
    connection.close()
    return entries / (time.perf_counter() - begun)


_ROWS = """SELECT e.entry, o.openings FROM log_entries e JOIN openings o
    ON o.tenant_id = e.tenant_id AND o.seq = e.seq
    WHERE e.tenant_id = 'default' AND e.seq < ? ORDER BY e.seq"""


def measured(made: Path) -> None:
    database, target = made / "data" / "sluice.db", made / "log.ndjson"
    service, key = started(made)
    key_file = made / "admin.key"
    key_file.write_text(key)
    key_file.chmod(0o600)
    try:
        export = Export(service, key_file, target).wait()
        rate = export.answer["entries"] / export.seconds
        size = target.stat().st_size
        target.unlink()
        entries = min(FLOOR, export.answer["entries"])
        base, rival = floor(database, target, entries), dump(database, target, entries)
        target.unlink()
        print(f"{export.answer['entries']:,} entries, {size / 1e9:.2f} GB, {export.seconds:.1f} s")
        reached = rate >= RATE
        print(_row("export, service and client", rate, base, f">= {RATE:,}/s", reached=reached))
        print(_row("the floor: read, join, hash, write", base, base))
        print(_row("a dump of the two tables as SQL", rival, base))
        client, server = (most / 2**20 for most in export.most)
        added = server - export.before / 2**20
        busy = ", ".join(f"{cpu / export.answer['entries'] * 1e6:.1f}" for cpu in export.cpu)
        print(f"CPU an entry: client and server {busy} µs")
        print(f"memory: client {client:.0f} MiB, server {server:.0f} MiB ({added:+.0f})")
        evaluations(service, key, key_file, target)
    finally:
        service.stop()


def evaluations(service: Service, key: str, key_file: Path, target: Path) -> None:
    """Evaluations a second with an export beside them and without, in turn."""
    sent = request("POST", EVALUATE, asked(), key)
    load(service.port, sent, CONNECTIONS, 2.0)
    ratios, exported = [], []
    for _ in range(3):
        alone = load(service.port, sent, CONNECTIONS, SECONDS)["rate"]
        export = Export(service, key_file, target)
        both = load(service.port, sent, CONNECTIONS, SECONDS)["rate"]
        export.stop()
        part = target.with_name(target.name + ".part")
        exported.append(part.stat().st_size if part.exists() else target.stat().st_size)
        part.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        ratios.append(both / alone)
        print(f"  evaluate {alone:,.0f}/s alone, {both:,.0f}/s beside an export", flush=True)
    ratio = sorted(ratios)[1]
    moved = f"{sorted(exported)[1] / 1e6 / SECONDS:.1f} MB/s exported"
    print(Figure("evaluate beside an export", moved, ratio, f">= {KEPT}", ratio >= KEPT).row())


def _row(measure: str, rate: float, base: float, target: str = "", *, reached: bool = False) -> str:
    return Figure(measure, f"{rate:,.0f}/s", rate / base, target, reached).row()


def main() -> None:
    argument = sys.argv[1] if len(sys.argv) > 1 else str(ENTRIES)
    if not argument.isdecimal():
        measured(Path(argument))
        return
    made = Path(tempfile.mkdtemp(prefix="sluice-export-"))
    try:
        asyncio.run(large_log.make(made, int(argument)))
        measured(made)
    finally:
        shutil.rmtree(made)


if __name__ == "__main__":
    main()
