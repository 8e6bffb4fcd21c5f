"""Measures the CPU time of a process and of everything it starts, by a control group of its own.

`resource.getrusage` counts only children that were waited for, and misses what a service of another
process does. A control group misses nothing: forked services, PostgreSQL's backends, browsers.
Making one takes root, or a group that was delegated to this user.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_SYSTEM = Path("/sys/fs/cgroup")
_VERSION_1 = _SYSTEM / "cpuacct"
NANOSECONDS, MICROSECONDS = 1e9, 1e6


class NoGroup(Exception):
    """no control group can be made here; run as root, or measure on another machine"""


class Group:
    """The current process and what it starts from now on."""

    def __init__(self, name: str) -> None:
        """Raises `NoGroup`."""
        self._one = _VERSION_1.is_dir()
        try:
            # A group of the same name may be left over from a process that had this number before.
            made = tempfile.mkdtemp(prefix=f"{name}-", dir=_VERSION_1 if self._one else _SYSTEM)
            self._folder = Path(made)
            (self._folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            raise NoGroup(f"no control group `{name}` can be made here: {error}") from error

    def seconds(self) -> float:
        """CPU seconds that the group has used."""
        if self._one:
            return int((self._folder / "cpuacct.usage").read_text()) / NANOSECONDS
        stat = (self._folder / "cpu.stat").read_text().split()
        return int(stat[stat.index("usage_usec") + 1]) / MICROSECONDS

    def leave(self) -> None:
        """Move the current process back to the root's group, and remove this one if it is empty;
        otherwise it stays until the processes in it have ended."""
        (self._folder.parent / "cgroup.procs").write_text(str(os.getpid()))
        try:
            self._folder.rmdir()
        except OSError:
            return
