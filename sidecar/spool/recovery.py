"""Reads the files that the previous process left in the spool's directory, and decides where to
continue.

The newest instance continues if its chain is whole to the end. Recovery reads its last segment and
judges the bytes after the last good frame:

    only zeros                     nothing to do: everything was synced
    no good frame                  a torn write that was never acknowledged: overwritten with zeros
    good frames with a higher n    a bad frame in the middle: what follows can't be chained. The
                                   instance ends before it, its files stay as they were found, and
                                   the records after it are declared lost

After a power cut the last batch may lack one page and hold a later one. That looks like the third
case and is treated as such: this declares records lost that were never acknowledged, but treating
it as the second case could silently lose acknowledged ones.

Older segments and instances are checked when they are read back for shipping. Recovery blocks, and
runs before the spool takes records.
"""

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from policies.ground.canonical import b64
from policies.ground.errors import worded
from sidecar.spool.instance import Instance, Segment
from sidecar.spool.reading.reader import WaitingSince, payload_hash, waiting_since
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import Header, Scan, read_header, scan
from sidecar.spool.storage.layout import (
    CONFLICT,
    DAMAGED,
    Aside,
    Ending,
    aside_ordinal,
    parse_instance,
    read_acked,
    read_ending,
    segment_first,
    spare_ordinal,
)

log = logging.getLogger(__name__)


class Resumed(NamedTuple):
    """The place where writing continues: the segment, the offset after its last frame, the number
    of the next record, and the base64 hash of the record before that."""

    instance: Instance
    segment: Segment
    offset: int
    n: int
    prev: str


@dataclass(slots=True)
class Recovered:
    """What recovery found on disk. `undeclared` are the instances that have ended, but have no gap
    record on disk that says so. `held` is the bytes of all segments. `waiting` has the times since
    when unacknowledged records have waited."""

    instances: list[Instance] = field(default_factory=list)
    undeclared: list[Instance] = field(default_factory=list)
    resumed: Resumed | None = None
    spares: list[Path] = field(default_factory=list)
    ordinal: int = 0
    held: int = 0
    waiting: list[WaitingSince] = field(default_factory=list)


class _LastSegment(NamedTuple):
    segment: Segment
    header: Header
    data: bytes
    scan: Scan


def recover(disk: Disk, root: Path, source: str, segment_bytes: int) -> Recovered:
    """Read the spool's directory `root`, and remove files that were never used. Raises `OSError` if
    the disk fails."""
    found = Recovered()
    last: _LastSegment | None = None
    for path in disk.list(root):
        if path.suffix == ".tmp":
            # A spare in the making, or an instance half removed: neither has anything to ship.
            disk.remove_directory(path) if path.is_dir() else disk.remove(path)
        elif spare_ordinal(path) is not None:
            if disk.size(path) == segment_bytes:
                found.spares.append(path)
                found.held += segment_bytes
            else:
                disk.remove(path)
        elif (aside := aside_ordinal(path)) is not None:
            # Directories set aside count too: an ordinal is never reused.
            found.ordinal = max(found.ordinal, aside)
            kept = [file for file in disk.list(path) if segment_first(file) is not None]
            found.held += sum(disk.size(file) for file in kept)
        elif (parsed := parse_instance(path)) is not None:
            found.ordinal = max(found.ordinal, parsed[0])
            instance = Instance(*parsed, source, path)
            loaded = _load(disk, instance)
            # The process may have died between making the directory and its first segment.
            if instance.segments or instance.ending is not None:
                found.instances.append(instance)
                last = loaded
            else:
                disk.remove_directory(path)
    if found.instances:
        _resume_last(disk, found, last, source)
    for instance in found.instances:
        found.held += sum(segment.size for segment in instance.segments)
        if instance.ending is not None and not instance.ending.declared:
            found.undeclared.append(instance)
    found.waiting = waiting_since(disk, found.instances)
    return found


def _load(disk: Disk, instance: Instance) -> _LastSegment | None:
    acked = read_acked(disk, instance.path)
    for path in disk.list(instance.path):
        if (first := segment_first(path)) is not None:
            instance.segments.append(Segment(path, first, disk.size(path)))
    last = _last_segment(disk, instance)
    # Only a fully acknowledged segment is deleted, so everything before the first is acknowledged.
    instance.acked = max(acked, instance.segments[0].first if instance.segments else 0)
    if last is not None:
        instance.source, instance.end = last.header.source, last.scan.next
        instance.begun = last.segment.first
        _check_chain(instance, last.scan)
    elif instance.acked > 0 and instance.ending is None:
        # Its numbers were used up to here, and nothing shows how far beyond.
        _set_ending(instance, "the segments of the spool are missing", instance.acked, None)
    _merge_saved_ending(disk, instance)
    return last


def _last_segment(disk: Disk, instance: Instance) -> _LastSegment | None:
    segments = instance.segments
    while segments:
        data = disk.read(segments[-1].path)
        first = segments[-1].first
        found = read_header(data)
        if found is not None and found[0].first == first and found[0].instance == instance.id:
            return _LastSegment(segments[-1], found[0], data, scan(data, found[1], first))
        # Good frames behind a bad header were acknowledged: that is damage, not a torn write.
        if (beyond := scan(data, 0, first).beyond) is not None:
            _set_ending(instance, "a bad segment header", first, beyond, DAMAGED)
            instance.end = first
            return None
        # The process died after it made this segment and before the first sync in it.
        disk.remove(segments.pop().path)
    return None


def _check_chain(instance: Instance, found: Scan) -> None:
    if found.beyond is not None:
        _set_ending(instance, "a bad frame among good ones", found.next, found.beyond, DAMAGED)
    elif instance.acked > found.next:
        # Continuing would reuse numbers that the control API already has.
        _set_ending(instance, "records that were acknowledged are missing here", found.next, None)


def _set_ending(
    instance: Instance, reason: str, first: int, beyond: int | None, aside: Aside = ""
) -> None:
    lost = None if beyond is None else beyond - first
    log.error("spool instance `%s` ends at record %d: %s", instance.path.name, first, reason)
    instance.ending = Ending(reason, first, lost, aside)


def _merge_saved_ending(disk: Disk, instance: Instance) -> None:
    try:
        noted = read_ending(disk, instance.path)
    except (ValueError, TypeError) as error:
        noted = Ending(f"the file `ended` can't be read: {error}", instance.end, None)
    if noted is not None:
        # The saved ending takes precedence: the records beyond it were declared lost, even if they
        # turn out to be readable. But damage before it means that more is lost.
        found = instance.ending
        if found is not None and found.first < noted.first:
            lost = None if noted.lost is None else noted.lost + noted.first - found.first
            noted = replace(found, lost=lost)
        instance.ending = noted
        instance.end = min(instance.end, noted.first)
    if instance.ending is not None and instance.ending.aside == CONFLICT:
        # The control API refused the rest, so nothing is left to ship.
        instance.acked = instance.end


def _resume_last(disk: Disk, found: Recovered, last: _LastSegment | None, source: str) -> None:
    instance = found.instances[-1]
    # An instance belongs to one sidecar id: another id begins a new instance.
    if instance.ending is not None or last is None or instance.source != source:
        return
    try:
        _write_back(disk, last)
    except OSError as error:
        end = instance.end
        _set_ending(instance, f"its last segment can't be written again: {worded(error)}", end, end)
        return
    prev = last.header.prev if last.scan.last is None else b64(payload_hash(last.scan.last))
    found.resumed = Resumed(instance, last.segment, last.scan.end, last.scan.next, prev)


def _write_back(disk: Disk, last: _LastSegment) -> None:
    """Rewrite the segment with the bytes that were read, but with zeros after its last good frame,
    and sync it."""
    # After a failed sync in the previous process, the kernel may show data that the disk does not
    # hold. A record appended to such data would chain to one that the next power cut takes away.
    # Writing the same bytes over themselves is harmless.
    end = last.scan.end
    if not last.scan.clean:
        cut_off = "a torn write at the end of `%s` was cut off: nothing in it was acknowledged"
        log.warning(cut_off, last.segment.path.name)
    rest = b"" if last.scan.clean else bytes(len(last.data) - end)
    disk.rewrite(last.segment.path, last.data[:end] + rest)
