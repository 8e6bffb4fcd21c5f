"""Lets a spool fall quiet and kills it at each of its steps to the disk, one life for each.

    python -m tests.sidecar.spool.quiet_process DIRECTORY

Each life has its own directory, `DIRECTORY/<moment>`, in which `hash` is the hash of its last
record. Prints the number of lives that were killed; the one after them finished undisturbed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from sidecar.spool import Spool
from sidecar.spool.storage.disk import Disk
from tests.sidecar.spool.running_spool import CLOCK, SOURCE, record, settings
from tests.support.waiting import until_async

SEED = "seeded-7c1f@person"
RECORDS = 5
QUIET = 0.01


class LethalDisk(Disk):
    """Counts steps once it is `armed`, and kills this process at step `moment`: before an
    operation, or half way through a write."""

    def __init__(self, moment: int) -> None:
        self.armed = False
        self._left = moment

    def _step(self) -> None:
        if self.armed:
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        half = len(data) // 2
        self._step()
        super().write(descriptor, data[:half], offset)
        self._step()
        super().write(descriptor, data[half:], offset + half)

    def sync(self, descriptor: int) -> None:
        self._step()
        super().sync(descriptor)

    def sync_directory(self, path: Path) -> None:
        self._step()
        super().sync_directory(path)

    def rename(self, path: Path, to: Path) -> None:
        self._step()
        super().rename(path, to)


async def live(root: Path, moment: int) -> None:
    disk = LethalDisk(moment)
    spool = await Spool.open(settings(root / "spool"), SOURCE, CLOCK, os.urandom, disk, QUIET)
    running = asyncio.create_task(spool.run())
    placed = [spool.put(record(n, query=SEED), denial=False) for n in range(RECORDS)]
    await placed[-1].durable
    (root / "hash").write_bytes(placed[-1].core_hash)
    disk.armed = True
    await spool.acknowledge(spool.instance, RECORDS - 1)
    await until_async("the spare segments are seeded", lambda: not seeded(root / "spool"))
    running.cancel()
    await spool.close(5)


def seeded(root: Path, seed: str = SEED) -> bool:
    """Whether a file holds the seed; also True if one was renamed or removed during the search."""
    try:
        files = [path for path in root.rglob("*") if path.is_file()]
        return any(seed.encode() in path.read_bytes() for path in files)
    except FileNotFoundError:
        return True


def killed(root: Path, moment: int) -> bool:
    # Forked, so that the imports are paid for once. No thread runs here yet.
    child = os.fork()
    if not child:
        root.mkdir()
        asyncio.run(live(root, moment))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code != 0


if __name__ == "__main__":
    moment = 0
    while killed(Path(sys.argv[1]) / str(moment), moment):
        moment += 1
    print(moment)
