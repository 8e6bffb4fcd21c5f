"""Runs a service with a clock that can be set and a disk that can fail. Real faults of both would
need root, a mount or another kernel, so they are made in the two adapters that use them.

    python -m tests.chaos.faulty FILE sidecar|control_api ARGUMENTS…

FILE holds `{"clock": seconds, "disk": "" | "ENOSPC" | "EIO"}` and is read ten times a second.
"""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

EVERY = 0.1


class Ordered:
    """The faults that FILE orders now."""

    def __init__(self, path: Path) -> None:
        self.clock = 0.0
        self.disk = ""
        self._path = path
        self._look()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(EVERY)
            self._look()

    def _look(self) -> None:
        try:
            told = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return  # being written
        self.clock, self.disk = float(told["clock"]), str(told["disk"])


def set_clock(ordered: Ordered) -> None:
    """Shift the clock: `Clock.now` of either service calls `time.time_ns`."""
    real = time.time_ns
    time.time_ns = lambda: real() + int(ordered.clock * 1e9)


def spoil_disk(ordered: Ordered) -> None:
    from sidecar.spool.storage.disk import Disk

    def spoiled(operation: Any) -> Any:
        def run(self: Disk, *arguments: Any, **named: Any) -> Any:
            if ordered.disk:
                number = getattr(errno, ordered.disk)
                raise OSError(number, os.strerror(number))
            return operation(self, *arguments, **named)

        return run

    for name in ("write", "sync", "create_zeroed"):
        setattr(Disk, name, spoiled(getattr(Disk, name)))


def main() -> None:
    ordered, service = Ordered(Path(sys.argv[1])), sys.argv[2]
    set_clock(ordered)
    if service == "sidecar":
        spoil_disk(ordered)
    sys.argv = [service, *sys.argv[3:]]
    runpy.run_module(service, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
