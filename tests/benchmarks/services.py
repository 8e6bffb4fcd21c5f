"""The services as they run: processes on loopback, each measured on one core beside its floor."""

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks import mixed_requests
from tests.benchmarks.measure import (
    LOAD,
    REST,
    SERVER,
    Figure,
    bare,
    costed_load,
    load,
    request,
    turn_about,
)
from tests.ports import free_port
from tests.stack import Stack, call, running

EVALUATE = "/v1/context/evaluate"
MIB = 2**20


@contextmanager
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="sluice-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def answer_size(stack: Stack) -> int:
    status, answer = stack.evaluate()
    assert (status, answer["decision"]) == (200, "ALLOW"), answer
    return len(str(answer).encode())


def sidecar_evaluate(seconds: float, rounds: int) -> list[Figure]:
    """The sidecar's `durable` mode with 64 connections, in turn with its floor on the same core."""
    with directory() as made, running(made, control_cores=REST, sidecar_cores=SERVER) as stack:
        sent = request("POST", EVALUATE, stack.ask(), stack.agent_key)
        with bare(made, "constant", str(answer_size(stack)), SERVER) as floor:
            ours, theirs, ratio = turn_about(
                lambda: load(stack.sidecar.port, sent, 64, seconds),
                lambda: load(floor.port, sent, 64, seconds),
                rounds,
            )
        assert stack.verify()["valid"]
    value = f"{ours:,.0f}/s against {theirs:,.0f}/s"
    name = "sidecar evaluate, durable, 64 connections"
    return [Figure(name, value, ratio, ">= 0.75", ratio >= 0.75)]


def control_evaluate(seconds: float, rounds: int) -> list[Figure]:
    """On SQLite, each response after its commit; requests that differ."""
    with directory() as made:
        stack = Stack(made, policies=mixed_requests.policies(), control_cores=SERVER)
        try:
            stack.start_control()
            stack.prepare()
            sent = mixed_requests.prepare(stack)
            load(stack.control.port, sent, 64, seconds)
            runs = [costed_load(stack.control, sent, 64, seconds) for _ in range(rounds)]
            assert stack.verify()["valid"]
        finally:
            stack.stop()
    rate, cpu = (statistics.median(run[name] for run in runs) for name in ("rate", "cpu"))
    name = "control API evaluate, SQLite, 64 connections"
    value = f"{rate:,.0f}/s, {cpu:.0f} µs CPU"
    return [Figure(name, value, None, ">= 6,000/s", rate >= 6000)]


def reverse_proxy(seconds: float, rounds: int) -> list[Figure]:
    """2 KB responses over 16 connections through a `rest` source, with decision and lineage
    recorded."""
    with directory() as made, bare(made, "upstream", "2048", LOAD) as upstream:
        port = free_port()
        source: dict[str, Any] = {
            "alias": "files",
            "kind": "rest",
            "upstream": f"http://127.0.0.1:{upstream.port}",
            "listen": f"127.0.0.1:{port}",
            "sensitivity": "low",
        }
        settings = {"control_cores": REST, "sidecar_cores": SERVER, "sources": [source]}
        with (
            running(made, **settings) as stack,
            bare(made, "passthrough", f"http://127.0.0.1:{upstream.port}", SERVER) as floor,
        ):
            sent = request("GET", "/reports/7")
            ours, theirs, ratio = turn_about(
                lambda: load(port, sent, 16, seconds),
                lambda: load(floor.port, sent, 16, seconds),
                rounds,
            )
            assert stack.verify()["valid"]
    value = f"{ours:,.0f}/s against {theirs:,.0f}/s"
    name = "reverse proxy, 2 KB answers, 16 connections"
    return [Figure(name, value, ratio, ">= 0.8", ratio >= 0.8)]


def memory(decisions: int) -> list[Figure]:
    """Resident memory of a sidecar while it makes `decisions`."""
    samples: list[int] = []
    with directory() as made, running(made, control_cores=REST, sidecar_cores=SERVER) as stack:
        sent = request("POST", EVALUATE, stack.ask(), stack.agent_key)
        done, end = 0, time.monotonic() + 900
        while done < decisions and time.monotonic() < end:
            done += load(stack.sidecar.port, sent, 64, 10)["answers"]
            samples.append(stack.sidecar.resident())
        assert call(stack.sidecar.port, "GET", "/health/ready")[0] == 200
    first, last, most = (size / MIB for size in (samples[0], samples[-1], max(samples)))
    value = f"{most:.1f} MiB at most; {first:.1f} then {last:.1f} after {done:,}"
    name = "sidecar, resident memory"
    return [Figure(name, value, last / first, "<= 60 MiB", most <= 60 and last / first < 1.1)]


def figures(quick: bool) -> Iterator[Figure]:
    seconds, rounds = (3.0, 1) if quick else (8.0, 5)
    yield from sidecar_evaluate(seconds, rounds)
    yield from control_evaluate(seconds, rounds)
    yield from reverse_proxy(seconds, rounds)
    yield from memory(50_000 if quick else 1_000_000)
