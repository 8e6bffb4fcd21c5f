"""A receiver that a test starts, kills and reads (`receiver_process`), and what it was sent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from control_api.audit.export_push.target_loop import ExportParts
from control_api.metrics.metrics import Instruments
from tests.support.certificates import authority
from tests.support.control_api import ControlApi, asked
from tests.support.open_store import OpenStore
from tests.support.ports import free_port
from tests.support.waiting import until

MODULE = "tests.control_api.audit.export_push.receiver_process"


class Receiver:
    """A receiver at one port, whether it runs or not."""

    def __init__(self, folder: Path, kind: str, *, tls: bool = False) -> None:
        self.folder, self.port, self.kind = folder, free_port(), kind
        folder.mkdir(parents=True)
        self._pair: list[str] = []
        if tls:
            pair = authority().issue("127.0.0.1")
            self._pair = [str(pair.certificate), str(pair.key)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        if self.kind == "otlp":
            tls = f"s://127.0.0.1:{self.port}?ca={authority().path}"
            return "otlp+http" + (tls if self._pair else f"://127.0.0.1:{self.port}")
        if self._pair:
            return f"syslog+tls://127.0.0.1:{self.port}?format=ecs&ca={authority().path}"
        return f"syslog+tcp://127.0.0.1:{self.port}?format=ecs"

    def start(self, mode: str = "") -> Receiver:
        self.set(mode)
        (self.folder / "ready").unlink(missing_ok=True)
        command = [sys.executable, "-m", MODULE, self.kind, str(self.port), str(self.folder)]
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen([*command, *self._pair], stderr=output)
        until("the receiver listens", (self.folder / "ready").exists)
        return self

    def set(self, mode: str) -> None:
        new = self.folder / "mode.new"
        new.write_text(mode)
        new.replace(self.folder / "mode")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def died(self) -> None:
        """Waits until it has killed itself."""
        assert self._process is not None
        assert self._process.wait(60) == -9, (self.folder / "output").read_text()

    def faults(self) -> str:
        """The traces of its own assertions: what was sent is not what the standard says."""
        return (self.folder / "output").read_text()

    def notes(self) -> list[str]:
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def taken(self) -> list[tuple[str, int, str]]:
        """Tenant, seq and event id of what it took, in order."""
        path = self.folder / "taken"
        rows = path.read_text().splitlines() if path.exists() else []
        return [(row.split()[0], int(row.split()[1]), row.split()[2]) for row in rows]

    def has(self, count: int) -> bool:
        return len(self.taken()) >= count

    def has_all(self, ids: Sequence[str]) -> bool:
        return set(ids) <= set(self.ids())

    def ids(self) -> list[str]:
        return [each[2] for each in self.taken()]


def parts_on(world: OpenStore, registry: CollectorRegistry, database_url: str = "") -> ExportParts:
    """What a loop of one target works with. Set `stopping` for one last turn."""
    return ExportParts(
        world.store,
        world.store.clock,
        os.urandom,
        Instruments(registry).exports,
        (),
        (database_url or world.url).startswith("sqlite"),
        asyncio.Event(),
    )


def decide(api: ControlApi, count: int, **changed: object) -> list[str]:
    """The ids of so many decisions, in order."""
    found: list[str] = []
    while count > 0:
        items = [asked(**changed) for _ in range(min(100, count))]
        answer = api.call("POST", "/v1/context/evaluate/batch", {"items": items})
        assert answer.status == 200, answer.raw
        found += [each["event_id"] for each in answer.body["results"]]
        count -= len(items)
    return found


def lag(api: ControlApi, place: int = 1) -> float:
    return metric(api, f'sluice_export_lag_entries{{target="{place}"}}')


def metric(api: ControlApi, sample: str) -> float:
    text = api.call("GET", "/metrics", key=None).raw.decode()
    return float(next(line for line in text.splitlines() if line.startswith(sample)).split()[-1])


def without_repeats(rows: Sequence[tuple[str, int, str]]) -> tuple[list[str], int]:
    """The event ids as they first came, and how often the order of a tenant went back. Fails if an
    event that had not come yet comes after a later one."""
    newest, seen, back = dict[str, int](), dict[str, None](), 0
    before = dict[str, int]()
    for tenant, seq, eid in rows:
        if eid not in seen:
            assert seq > newest.get(tenant, -1), f"{eid} came after a later one"
            newest[tenant] = seq
        back += seq <= before.get(tenant, -1)
        before[tenant] = seq
        seen[eid] = None
    return list(seen), back
