"""Waits until files below a folder change. Asks for their state again and again: that needs no
library, sees what every editor does when it saves, and works on network mounts."""

import os
from collections.abc import Callable
from pathlib import Path

SECONDS = 0.2
"""Between two looks."""

State = dict[str, tuple[int, int, int, int]]
"""Inode, size, and times of change of each file, by path."""


def state(folder: Path) -> State:
    """The state of the YAML files below `folder`, hidden ones left out."""
    found: State = {}
    seen: set[str] = set()
    # Kubernetes mounts files as links to folders, and a link may lead to a folder around it.
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        folders[:] = [] if real in seen else [name for name in folders if not _hidden(name)]
        if real in seen:
            continue
        seen.add(real)
        for name in names:
            if name.endswith((".yaml", ".yml")) and not _hidden(name):
                path = Path(here, name)
                try:
                    at = path.stat()
                except OSError:  # it was there a moment ago
                    continue
                found[str(path)] = (at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
    return found


def wait_for_change(folder: Path, known: State, pause: Callable[[float], object]) -> None:
    """Return once the state is no longer `known`, and has stayed as it is for one look: an editor
    may empty a file, or remove it, before it writes it."""
    before = known
    while True:
        pause(SECONDS)
        now = state(folder)
        if now != known and now == before:
            return
        before = now


def _hidden(name: str) -> bool:
    return name.startswith(".")
