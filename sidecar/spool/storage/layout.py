"""The names in a spool's directory, and the two small files beside the segments.

    lock                                       held by the one process that uses the directory
    spare-00000007.seg                         a segment of zeros, ready for use
    00000003-<instance>/                       one spool instance; the number orders them
        00000000000000000412.seg               a segment, named by the number of its first record
        acked                                  how far the control API has it; not synced
        ended                                  why it takes no more records, and what was lost
    conflict-00000002-<instance>/              refused by the control API, kept for an operator
    damaged-00000001-<instance>/               holds a segment with a bad frame, as it was found

Knows names and formats. Opens files only through `Disk`.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Literal, TypeAlias

import orjson

from policies.ground.canonical import encode
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import crc32c

Aside: TypeAlias = Literal["", "conflict", "damaged"]
"""The prefix of a directory whose files are kept for an operator; empty if none are kept."""

CONFLICT: Final = "conflict"
DAMAGED: Final = "damaged"

_INSTANCE = re.compile(r"(\d{8})-([0-9a-f]{32})\Z")
_ASIDE = re.compile(rf"(?:{CONFLICT}|{DAMAGED})-(\d{{8}})-[0-9a-f]{{32}}\Z")
_SEGMENT = re.compile(r"(\d{20})\.seg\Z")
_SPARE = re.compile(r"spare-(\d{8})\.seg\Z")
_ACKED = Struct(">QI")


@dataclass(frozen=True, slots=True)
class Ending:
    """The reason why an instance takes no more records.

    The records from number `first` on are lost to the log, `lost` of them (None: not known).
    `aside` names the directory that keeps its files once the rest has shipped; if empty, nothing is
    kept. `declared`: a gap record that says so is on disk.
    """

    reason: str
    first: int
    lost: int | None
    aside: Aside = ""
    declared: bool = False


def lock_file(root: Path) -> Path:
    return root / "lock"


def instance_directory(root: Path, ordinal: int, instance: str) -> Path:
    return root / f"{ordinal:08d}-{instance}"


def parse_instance(path: Path) -> tuple[int, str] | None:
    """Return the ordinal and id of an instance in use."""
    found = _INSTANCE.match(path.name)
    return (int(found[1]), found[2]) if found else None


def aside_directory(path: Path, why: Aside) -> Path:
    return path.with_name(f"{why}-{path.name}")


def aside_ordinal(path: Path) -> int | None:
    return _number(_ASIDE, path)


def segment_file(directory: Path, first: int) -> Path:
    # Padded, so that names sort by number, as recovery reads them. 20 digits hold any u64.
    return directory / f"{first:020d}.seg"


def segment_first(path: Path) -> int | None:
    return _number(_SEGMENT, path)


def spare_file(root: Path, ordinal: int) -> Path:
    return root / f"spare-{ordinal:08d}.seg"


def spare_ordinal(path: Path) -> int | None:
    return _number(_SPARE, path)


def _number(pattern: re.Pattern[str], path: Path) -> int | None:
    found = pattern.match(path.name)
    return int(found[1]) if found else None


def write_acked(disk: Disk, directory: Path, acked: int) -> None:
    """Note how far the instance is acknowledged."""
    # Only a hint that saves resending: the control API skips what it already has. So it costs no
    # sync. If it is missing or half written, the first record of the oldest segment counts.
    number = acked.to_bytes(8, "big")
    disk.note(directory / "acked", number + crc32c(number).to_bytes(4, "big"))


def read_acked(disk: Disk, directory: Path) -> int:
    """Return the number that was noted; 0 if it is unknown."""
    try:
        data = disk.read(directory / "acked")
    except FileNotFoundError:
        return 0
    if len(data) != _ACKED.size:
        return 0
    acked, checksum = _ACKED.unpack(data)
    return int(acked) if checksum == crc32c(data[:8]) else 0


def write_ending(disk: Disk, directory: Path, ending: Ending) -> None:
    # Replaced as a whole: half an ending could not say what is lost.
    disk.put(directory / "ended", encode(asdict(ending)))


def read_ending(disk: Disk, directory: Path) -> Ending | None:
    try:
        data = disk.read(directory / "ended")
    except FileNotFoundError:
        return None
    return Ending(**orjson.loads(data))
