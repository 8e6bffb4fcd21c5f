"""How fast decisions are exported in each format, by one core: from stored rows to lines, beside
the floor, the same rows as the plain JSON of their events.

    python -m tests.benchmarks.export_formats            the lines alone, half a minute
    python -m tests.benchmarks.export_formats ENTRIES    and whole exports of a log by the service
"""

import asyncio
import http.client
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import psutil

from control_api.log.export.decisions import read_event
from control_api.log.formats import FORMATS, Format
from policies.ground.canonical import rfc3339
from policies.retrieval import parse_retrieval
from policies.trail.merkle_tree import leaf_hash
from tests.benchmarks import large_log
from tests.benchmarks.core import BODY, TIME, decide, policy_set
from tests.benchmarks.export import started
from tests.benchmarks.measure import Figure

LINES, ROUNDS = 4000, 7
TENANT = "default"


def stored_row() -> Any:
    """A decision as the database gives it: entry, hash and openings."""
    asked = {**BODY, "query": "which clauses bind the lender after the closing?"}
    record = decide(policy_set(10), parse_retrieval(asked))
    entry = record.entry("tenant/default", 17, "", rfc3339(TIME))
    hashed = leaf_hash(entry)
    return SimpleNamespace(seq=17, entry=entry, hash=hashed, openings=record.openings)


def line(form: Format, row: Any) -> bytes:
    return form.encode(read_event(row), TENANT) + form.end


def cpu_of(lines: Callable[[], object]) -> float:
    """CPU microseconds of a line."""
    begun = time.process_time()
    for _ in range(LINES):
        lines()
    return (time.process_time() - begun) / LINES * 1e6


def figures() -> list[Figure]:
    """Each format in turn with the floor, so that both have the same share of the machine."""
    row = stored_row()
    taken: dict[str, list[float]] = {name: [] for name in ("plain", *FORMATS)}
    for _ in range(ROUNDS):
        taken["plain"].append(cpu_of(lambda: orjson.dumps(read_event(row)) + b"\n"))
        for name, form in FORMATS.items():
            taken[name].append(cpu_of(partial(line, form, row)))
    floor = statistics.median(taken["plain"])
    found = []
    for name, times in taken.items():
        cpu = statistics.median(times)
        ratio = statistics.median(
            base / own for base, own in zip(taken["plain"], times, strict=True)
        )
        value = f"{1e6 / cpu:,.0f} lines/s a core, {cpu:.1f} µs, {cpu - floor:+.1f} µs"
        found.append(Figure(f"export of decisions, {name}", value, ratio, "", reached=True))
    return found


def served(entries: int) -> None:
    """Whole exports by the service, and its CPU: reading, hashing, writing lines, sending."""
    made = Path(tempfile.mkdtemp(prefix="sluice-formats-"))
    try:
        asyncio.run(large_log.make(made, entries))
        service, key = started(made)
        try:
            for name in FORMATS:
                process = psutil.Process(service.pid)
                before, begun = sum(process.cpu_times()[:2]), time.perf_counter()
                lines = _exported(service.port, key, name)
                seconds = time.perf_counter() - begun
                cpu = (sum(process.cpu_times()[:2]) - before) / lines * 1e6
                memory = process.memory_info().rss / 2**20
                print(
                    f"service, {name:<12} {lines:,} lines, {lines / seconds:,.0f}/s, "
                    f"CPU {cpu:.1f} µs a line, {memory:.0f} MiB",
                    flush=True,
                )
        finally:
            service.stop()
    finally:
        shutil.rmtree(made)


def _exported(port: int, key: str, form: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", f"/v1/audit/export?format={form}", headers={"X-API-Key": key})
    response, lines = connection.getresponse(), 0
    assert response.status == 200
    while piece := response.read1(1 << 20):
        lines += piece.count(b"\n")
    connection.close()
    return lines


def main() -> None:
    for figure in figures():
        print(figure.row(), flush=True)
    if len(sys.argv) > 1:
        served(int(sys.argv[1]))


if __name__ == "__main__":
    main()
