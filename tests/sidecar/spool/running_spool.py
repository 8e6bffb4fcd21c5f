"""What the spool's tests need: records, a disk that fails on demand, a running spool."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from policies.evaluate import refuse
from policies.ground.canonical import b64, encode
from policies.ground.clock import Clock
from policies.retrieval import Retrieval
from policies.trail.record import Record, decision_record
from policies.trail.spool_chain import core_hash, read_payload
from sidecar.spool import Spool, SpoolSettings, State
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import frame_at, read_header
from sidecar.spool.writing.maintenance import QUIET_SECONDS
from tests.support import waiting

CLOCK = Clock(now=lambda: time.time_ns() // 1000, monotonic=time.monotonic)
SOURCE = "sidecar-1"
MIB = 1024 * 1024
SEGMENT = MIB
SALT = bytes(range(32))


def record(eid: object = "event", query: str | None = None) -> Record:
    """A decision's record; tests identify it by its `eid`."""
    retrieval = Retrieval("support", "ann", "contracts", "low", query=query)
    decision = refuse("default_deny", "no policy")
    return decision_record(retrieval, decision, None, event_id=str(eid), salt=SALT, masking=False)


def settings(root: Path, **changes: Any) -> SpoolSettings:
    given = {"segment_bytes": SEGMENT, "max_bytes": 64 * MIB, **changes}
    return SpoolSettings(root, **given)


class FaultyDisk(Disk):
    """The real disk, except that an operation named in `broken` raises the error stored there.
    While `held` is set, syncs wait. `torn` bytes of a write reach the file before it fails."""

    def __init__(self) -> None:
        self.broken: dict[str, OSError] = {}
        self.calls: list[str] = []
        self.torn: int | None = None
        self._go = threading.Event()
        self._go.set()
        self.waiting = threading.Event()

    def breaks(self, *operations: str, code: int = errno.EIO) -> None:
        for operation in operations:
            self.broken[operation] = OSError(code, os.strerror(code))

    def heals(self) -> None:
        self.broken.clear()

    def hold(self) -> None:
        self.waiting.clear()
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def _at(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.broken:
            raise self.broken[operation]

    def make_directory(self, path: Path) -> None:
        self._at("make_directory")
        super().make_directory(path)

    def require_new_files(self, path: Path) -> None:
        self._at("require_new_files")
        super().require_new_files(path)

    def sync_directory(self, path: Path) -> None:
        self._at("sync_directory")
        super().sync_directory(path)

    def create_zeroed(self, path: Path, size: int) -> None:
        self._at("create_zeroed")
        super().create_zeroed(path, size)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        if "write" in self.broken and self.torn is not None:
            super().write(descriptor, data[: self.torn], offset)
        self._at("write")
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        self.waiting.set()
        self._go.wait(30)
        self._at("sync")
        super().sync(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        self._at("rename")
        super().rename(path, to)

    def rewrite(self, path: Path, data: bytes) -> None:
        self._at("rewrite")
        super().rewrite(path, data)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        self._at("read")
        return super().read(path, offset, length)

    def put(self, path: Path, data: bytes) -> None:
        self._at("put")
        super().put(path, data)

    def note(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        self._at("note")
        super().note(path, data, sync=sync)

    def remove(self, path: Path) -> None:
        self._at("remove")
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        self._at("remove_directory")
        super().remove_directory(path)


@asynccontextmanager
async def running_spool(
    root: Path,
    disk: Disk | None = None,
    source: str = SOURCE,
    quiet_seconds: float = QUIET_SECONDS,
    clock: Clock = CLOCK,
    **changes: Any,
) -> AsyncIterator[Spool]:
    """An open spool with its loop; closed without waiting long for a disk that hangs."""
    configured = settings(root, **changes)
    spool = await Spool.open(configured, source, clock, os.urandom, disk, quiet_seconds)
    loop = asyncio.create_task(spool.run())
    try:
        yield spool
        assert not loop.done(), loop.exception()
    finally:
        loop.cancel()
        await spool.close(5)


async def keep(spool: Spool, *eids: object) -> None:
    """Put, and wait until all are on disk."""
    placed = [spool.put(record(eid), denial=False) for eid in eids]
    for each in placed:
        await each.durable


async def keep_large(spool: Spool, kept: Record) -> None:
    """As `keep`, once the spool has the room that it makes in a thread of its own."""
    await waiting.until_async("the spool has room", lambda: spool.state is State.OPEN)
    await spool.put(kept, denial=False).durable


async def shipped(spool: Spool, max_bytes: int = MIB) -> list[dict[str, Any]]:
    """Everything unshipped, acknowledged, as cores in order; each instance's chain is checked."""
    cores = []
    while (batch := await spool.batch(max_bytes)) is not None:
        assert batch.last_n - batch.first_n + 1 == len(batch.payloads)
        spools = [read_payload(orjson.loads(payload)) for payload in batch.payloads]
        for n, spooled in enumerate(spools, batch.first_n):
            assert spooled.core["src"]["n"] == n
            assert spooled.core["src"]["inst"] == batch.instance
            assert spooled.core["src"]["id"] == batch.source
            cores.append(spooled.core)
        assert spools[-1].hash == batch.hash
        await spool.acknowledge(batch.instance, batch.last_n)
    return check_chain(cores)


def check_chain(cores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Within each instance: n without gaps, and each `prev` the hash of the record before."""
    last: dict[str, tuple[int, str]] = {}
    for core in cores:
        src = core["src"]
        before = last.get(src["inst"])
        if before is not None:
            assert (src["n"], src["prev"]) == (before[0] + 1, before[1])
        elif src["n"] == 0:
            assert src["prev"] == ""
        last[src["inst"]] = (src["n"], b64(read_hash(core)))
    return cores


def read_hash(core: dict[str, Any]) -> bytes:
    return core_hash(encode(core))


def eids(cores: list[dict[str, Any]]) -> list[str]:
    return [core["eid"] for core in cores if core["kind"] != "gap"]


def gaps(cores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the gap records declare."""
    return [core["pub"] for core in cores if core["kind"] == "gap"]


def instances(root: Path) -> list[Path]:
    """The directories of instances in use, oldest first."""
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name[0].isdigit())


def segments(root: Path) -> list[Path]:
    """The segments of the newest instance."""
    return sorted(instances(root)[-1].glob("*.seg"))


def spares(root: Path) -> list[Path]:
    """The segments made ahead of need."""
    return list(root.glob("spare-*.seg"))


def written(path: Path) -> int:
    """The bytes of a segment that hold its header and records."""
    return max((end for _, end in frames(path.read_bytes())), default=0)


def frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Offset and end of each frame of a segment that is whole."""
    header = read_header(data)
    assert header is not None
    offset = header[1]
    while (frame := frame_at(data, offset)) is not None:
        yield offset, frame.end
        offset = frame.end
