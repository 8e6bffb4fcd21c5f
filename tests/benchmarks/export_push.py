"""What targets of `SLUICE_EXPORT_URLS` cost evaluations: two that are away, and a file.

    python -m tests.benchmarks.export_push [ROUNDS]

Services on SQLite, one without targets, in turn: 32 connections evaluate for two seconds each.
Rate, and CPU of the service for an evaluation; the median of the ratios round by round. `away` has
one target that refuses connections and one that takes them and never answers; their backlog grows
with every round. About two minutes.
"""

import http.client
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks.measure import EVALUATE, Figure, load, request
from tests.support.control_api import asked
from tests.support.control_api_process import ControlApiProcess
from tests.support.ports import free_port

CONNECTIONS, SECONDS = 32, 2.0
RATE = 0.97
"""The least share of the rate, and of the inverse of the CPU, beside targets that are away."""


class Taken(NamedTuple):
    rate: float
    cpu: float
    """Microseconds for an evaluation."""


class Service:
    def __init__(self, folder: Path, urls: str) -> None:
        folder.mkdir()
        self.process = ControlApiProcess(folder, **({"SLUICE_EXPORT_URLS": urls} if urls else {}))
        self.port = self.process.ready()
        self.key = self.process.first_keys()["admin_key"]

    def taken(self) -> Taken:
        watched = psutil.Process(self.process.process.pid)
        before = sum(watched.cpu_times()[:2])
        sent = request("POST", EVALUATE, asked(), self.key)
        done = load(self.port, sent, CONNECTIONS, SECONDS)
        count = done["rate"] * SECONDS
        return Taken(done["rate"], (sum(watched.cpu_times()[:2]) - before) / count * 1e6)

    def stop(self) -> None:
        self.process.process.terminate()
        self.process.ended()
        self.process.output.close()


@contextmanager
def hanging() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


def figures(rounds: int) -> Iterator[Figure]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        hangs = stack.enter_context(hanging())
        lines = folder / "decisions"
        services = {
            "none": Service(folder / "none", ""),
            "away": Service(
                folder / "away",
                f"otlp+http://127.0.0.1:{free_port()},syslog+tcp://127.0.0.1:{hangs}?format=ecs",
            ),
            "file": Service(folder / "file", f"file://{lines}?format=ecs"),
        }
        for each in services.values():
            stack.callback(each.stop)
        found: dict[str, list[Taken]] = {name: [] for name in services}
        for _ in range(rounds + 1):
            for name, service in services.items():
                found[name].append(service.taken())
        for name in ("away", "file"):
            pairs = list(zip(found["none"][1:], found[name][1:], strict=True))
            rate = statistics.median(there.rate / none.rate for none, there in pairs)
            cpu = statistics.median(there.cpu / none.cpu for none, there in pairs)
            target = f">= {RATE}" if name == "away" else ""
            values = statistics.median(each.rate for each in found[name][1:])
            of_cpu = statistics.median(each.cpu for each in found[name][1:])
            shown = f"{values:,.0f}/s"
            yield Figure(f"evaluate, targets: {name}, rate", shown, rate, target, rate >= RATE)
            shown = f"{of_cpu:.0f} us CPU an evaluation"
            yield Figure(f"evaluate, targets: {name}, CPU", shown, cpu, "", True)
        waits = lag(services["file"].port)
        yield Figure("entries that wait for the file", f"{waits:,.0f}", None, "", True)


def lag(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    line = next(each for each in text.splitlines() if each.startswith("sluice_export_lag_entries"))
    return float(line.split()[-1])


if __name__ == "__main__":
    for figure in figures(int(sys.argv[1]) if sys.argv[1:] else 7):
        print(figure.row(), flush=True)
