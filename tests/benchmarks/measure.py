"""Takes a figure: servers in turn on one core, load from another, medians.

Knows no figure in particular. Machines are shared and drift, so only ratios within one run count.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.stack import ROOT, Service, listens
from tests.support.waiting import until

EVALUATE = "/v1/context/evaluate"
MIB = 2**20

CORES = sorted(os.sched_getaffinity(0))
SERVER = {CORES[0]}
"""The core of the service that is measured; never shared with the load."""
LOAD = {CORES[1 % len(CORES)]}
REST = {CORES[2]} if len(CORES) > 2 else LOAD
"""The core of the control API while a sidecar is measured."""


@dataclass(frozen=True)
class Figure:
    """One row of the table. `ratio` is None for an absolute measure; `target` is empty if the
    figure is only shown."""

    measure: str
    value: str
    ratio: float | None
    target: str
    reached: bool

    def row(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        mark = ("yes" if self.reached else "NO") if self.target else ""
        return f"{self.measure:<44} {self.value:<44} {ratio:>6}  {self.target:<12} {mark}"


def per_call(work: Callable[[], object], times: int = 20_000, rounds: int = 7) -> float:
    """Median CPU microseconds of one call."""
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(times):
            work()
        taken.append((time.process_time() - started) / times * 1e6)
    return statistics.median(taken)


def request(method: str, path: str, body: object = None, key: str | None = None) -> bytes:
    raw = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if raw:
        lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
    if key is not None:
        lines.append(f"X-API-Key: {key}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def load(port: int, sent: bytes, connections: int, seconds: float, *tls: str) -> dict[str, Any]:
    """One run of the load generator, in a process on its own core. `tls` are its last arguments."""
    command = [sys.executable, "-m", "tests.benchmarks.load", "127.0.0.1", str(port)]
    done = subprocess.run(
        [*command, str(connections), str(seconds), *tls],
        input=b"0\0" + sent,
        capture_output=True,
        check=False,
        cwd=ROOT,
        preexec_fn=lambda: os.sched_setaffinity(0, LOAD),
    )
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    answer: dict[str, Any] = json.loads(done.stdout)
    if set(answer["statuses"]) != {"200"}:
        raise SystemExit(f"answers other than 200: {answer['statuses']}")
    return answer


def cpu_seconds(service: Service) -> float:
    """CPU time of the process so far."""
    fields = Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="sluice-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def bare(directory: Path, kind: str, argument: str, cores: set[int]) -> Iterator[Service]:
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.bare", str(port), kind, argument]
    service = Service(kind, command, {}, directory / f"{kind}.log", port, cores)
    service.start(ready=kind not in ("upstream", "vectors", "flood"))
    until(f"{kind} listens", lambda: listens(port))
    try:
        yield service
    finally:
        service.kill()


def turn_about(
    ours: Callable[[], dict[str, Any]], theirs: Callable[[], dict[str, Any]], rounds: int
) -> tuple[float, float, float]:
    """Median rates of both, and the median of the ratios pair by pair, after one warm-up each."""
    ours(), theirs()
    pairs = [(ours()["rate"], theirs()["rate"]) for _ in range(rounds)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )
