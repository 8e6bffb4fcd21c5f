"""Defines the names in a spool's directory, the two small files beside the segments, and spare
segments.

    lock                                       held by the one process that uses the directory
    spare-00000007.seg                         a segment of zeros, ready for use
    00000003-<instance>/                       one spool instance; the number orders them
        00000000000000000412.seg               a segment, named by the number of its first record
        acked                                  how far the control API has it; not synced
        ended                                  why it takes no more records, and what was lost
    conflict-00000002-<instance>/              refused by the control API, kept for an operator
    damaged-00000001-<instance>/               holds a segment with a bad frame, as it was found

A spare is written to its last byte and synced before it counts. So it doubles as the room kept for
denials on a full disk: other programs could take space that is only promised.
"""

import asyncio
import contextlib
import logging
import re
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson

from policies.ground.canonical import encode
from policies.ground.errors import worded
from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import crc32c

log = logging.getLogger(__name__)

Aside: TypeAlias = Literal["", "conflict", "damaged"]
"""The prefix of a directory whose files are kept for an operator; empty if none are kept."""

CONFLICT: Final = "conflict"
DAMAGED: Final = "damaged"

_INSTANCE = re.compile(r"(\d{8})-([0-9a-f]{32})\Z")
_ASIDE = re.compile(rf"(?:{CONFLICT}|{DAMAGED})-(\d{{8}})-[0-9a-f]{{32}}\Z")
_SEGMENT = re.compile(r"(\d{20})\.seg\Z")
_SPARE = re.compile(r"spare-(\d{8})\.seg\Z")
_ACKED = struct.Struct(">QI")


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended. `reason` says why it takes no more records. The records from number
    `first` on are missing from the log, and `lost` counts them (None: not known). `aside` is the
    prefix of the directory that keeps its files once the rest has shipped; empty if none are kept.
    `declared`: a gap record that says so is on disk."""

    reason: str
    first: int
    lost: int | None
    aside: Aside = ""
    declared: bool = False


def instance_directory(root: Path, ordinal: int, instance: str) -> Path:
    return root / f"{ordinal:08d}-{instance}"


def parse_instance(path: Path) -> tuple[int, str] | None:
    """Return the ordinal and the id of the instance in this directory; None if its name is not that
    of an instance in use."""
    found = _INSTANCE.match(path.name)
    return (int(found[1]), found[2]) if found else None


def aside_directory(path: Path, why: Aside) -> Path:
    return path.with_name(f"{why}-{path.name}")


def segment_file(directory: Path, first: int) -> Path:
    # Padded, so that names sort by number, as recovery reads them. 20 digits hold any u64.
    return directory / f"{first:020d}.seg"


def spare_file(root: Path, ordinal: int) -> Path:
    return root / f"spare-{ordinal:08d}.seg"


def _number(pattern: re.Pattern[str], path: Path) -> int | None:
    found = pattern.match(path.name)
    return int(found[1]) if found else None


aside_ordinal = partial(_number, _ASIDE)
segment_first = partial(_number, _SEGMENT)
spare_ordinal = partial(_number, _SPARE)


def write_acked(disk: Disk, directory: Path, acked: int) -> None:
    """Save the number of acknowledged records of the instance."""
    # Only a hint that saves resending: the control API skips what it already has. So it costs no
    # sync. If it is missing or half written, the first record of the oldest segment counts.
    number = acked.to_bytes(8, "big")
    disk.note(directory / "acked", number + crc32c(number).to_bytes(4, "big"))


def read_acked(disk: Disk, directory: Path) -> int:
    """Return the number of acknowledged records that was saved; 0 if it is unknown."""
    try:
        data = disk.read(directory / "acked")
        acked, checksum = _ACKED.unpack(data)
    except (FileNotFoundError, struct.error):  # none, or half of one
        return 0
    return int(acked) if checksum == crc32c(data[:8]) else 0


def write_ending(disk: Disk, directory: Path, ending: Ending) -> None:
    # Replaced as a whole: half an ending could not say what is lost.
    disk.put(directory / "ended", encode(asdict(ending)))


def read_ending(disk: Disk, directory: Path) -> Ending | None:
    try:
        return Ending(**orjson.loads(disk.read(directory / "ended")))
    except FileNotFoundError:
        return None


class Quota:
    """Counts the bytes of all segment files against a limit. A segment counts in full even before
    it is written."""

    def __init__(self, limit: int, held: int) -> None:
        self.held = held
        self._limit = limit

    def fits(self, size: int) -> bool:
        return self.held + size <= self._limit

    def reserve(self, size: int) -> None:
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size


class SegmentPool:
    """Makes spare segments of `size` bytes in the directory `root`, one at a time. A spare is a
    file of zeros, ready for use."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        quota: Quota,
        size: int,
        found: Iterable[Path],
        monotonic: Callable[[], float],
    ) -> None:
        self.size = size
        self.disk_fault: str | None = None
        """The reason why the disk has no room for another spare; None if it has room."""
        self._root = root
        self._disk = disk
        # Its own thread: queued behind reads, a spare would come too late.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool-spares")
        self._quota = quota
        # Continue after the ordinals of the previous process: no two spares may share a name.
        self._last_ordinal = max((spare_ordinal(path) or 0 for path in found), default=0)
        self._pending: asyncio.Future[None] | None = None
        # A spool may be without a spare for days before it is full, which then needs its own line.
        self._consequence = ""
        what, back = "the spool gets no more room", "the spool has room for more records again"
        self._outage = RepeatingOutageLogger(log, what, back, monotonic)

    async def make(self, occupied_by: Callable[[], str], *, denials_only: bool) -> Path | None:
        """Make one spare segment. Returns None if `max_bytes` or the disk leaves no room. The log
        then says why: `occupied_by` returns what fills the room up to `max_bytes`, and
        `denials_only` means that ALLOWs are already refused."""
        self._consequence = "; only denials are recorded" if denials_only else ""
        if not self._quota.fits(self.size):
            self.disk_fault = None  # the disk is not asked
            self._outage.failing(f"`max_bytes` is reached: {occupied_by()}{self._consequence}")
            return None
        return await self.make_beyond()

    async def make_beyond(self) -> Path | None:
        """Make one spare segment even if that exceeds `max_bytes`. Returns None if the disk leaves
        no room."""
        path = self.next_name()
        # Reserved before the file exists: the limit holds even while it is being written.
        self._quota.reserve(self.size)
        self._pending = asyncio.get_running_loop().run_in_executor(self._thread, self._make, path)
        try:
            # Shielded: a thread can't be cancelled, and the file would be made all the same.
            await asyncio.shield(self._pending)
        except OSError as error:
            self._quota.release(self.size)
            self.disk_fault = worded(error)
            why = f"a segment can't be made: {worded(error, self._root)}"
            self._outage.failing(why + self._consequence)
            return None
        self.disk_fault = None
        self._outage.recovered()
        return path

    def next_name(self) -> Path:
        self._last_ordinal += 1
        return spare_file(self._root, self._last_ordinal)

    async def close(self, seconds: float) -> None:
        """Wait up to `seconds` for a spare that is being made: the directory's next owner must not
        find a file that is still being written."""
        if self._pending is not None:
            await asyncio.wait([self._pending], timeout=seconds)
        self._thread.shutdown(wait=False)

    def _make(self, path: Path) -> None:
        # If we die before the rename, the next start removes the unfinished file.
        unfinished = _unfinished(path)
        self._disk.create_zeroed(unfinished, self.size)
        self._disk.rename(unfinished, path)


def reuse(disk: Disk, segment: Path, used: int, spare: Path) -> None:
    """Turn a segment whose first `used` bytes were written into the spare segment `spare`, by
    overwriting them with zeros. Blocks. Raises `OSError`; then neither file is left, unless the
    disk can't even remove them."""
    unfinished = _unfinished(spare)
    try:
        disk.rename(segment, unfinished)
        # Synced first: zeros that a power cut leaves under the old name would look like damage. If
        # we die from here on, the next start removes the unfinished file.
        disk.sync_directory(segment.parent)
        disk.sync_directory(spare.parent)
        disk.rewrite(unfinished, bytes(used))
        # Only zeros are left in it. If we die after this, it is a spare like any other.
        disk.rename(unfinished, spare)
    except OSError:
        for each in (segment, unfinished):
            with contextlib.suppress(OSError):  # report the first failure
                disk.remove(each)
        raise


def _unfinished(spare: Path) -> Path:
    return spare.with_name(spare.name + ".tmp")
