"""What a former life left in the directory, and where to go on.

The newest instance goes on if its chain is whole to the end. Its last segment is read, and what
follows the last good frame is judged:

    nothing but zeros              nothing: it was all synced
    no good frame                  a torn write, which nobody was told of: cut, that is zeroed
    good frames with higher n      a bad frame in the middle: what follows it can't be chained. The
                                   instance ends before it, its files are kept as they are found,
                                   and what is behind is declared lost

After a power cut the last batch may lack one of its pages and hold a later one. That looks like
the third case, and is treated as such: it declares records as lost that were never acknowledged,
where the other reading would lose acknowledged ones in silence.

Older segments and instances are checked when they are read back to be shipped. Runs before the
event loop has anything else to do, and blocks.
"""

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from policies.ground.canonical import b64
from sidecar.spool.disk import Disk
from sidecar.spool.frames import Header, Scan, read_header, scan
from sidecar.spool.instance import Instance, Segment, payload_hash
from sidecar.spool.layout import (
    CONFLICT,
    DAMAGED,
    Ending,
    aside_ordinal,
    instance_named,
    read_acked,
    read_ending,
    segment_first,
    spare_ordinal,
)

log = logging.getLogger(__name__)


class Resumed(NamedTuple):
    """The segment to go on in: the offset behind the last frame, the next number, the base64 hash
    of the record before it."""

    instance: Instance
    segment: Segment
    offset: int
    n: int
    prev: str


@dataclass(slots=True)
class Recovered:
    """`undeclared` ended without a gap record that says so; `held` counts the bytes of segments."""

    instances: list[Instance] = field(default_factory=list)
    undeclared: list[Instance] = field(default_factory=list)
    resumed: Resumed | None = None
    spares: list[Path] = field(default_factory=list)
    ordinal: int = 0
    held: int = 0


class _Last(NamedTuple):
    """An instance's last segment, as it was read."""

    segment: Segment
    header: Header
    data: bytes
    scan: Scan


def recover(disk: Disk, root: Path, source: str, segment_bytes: int) -> Recovered:
    """Reads `root`, and clears away what was never used. Raises `OSError` where it can't."""
    found = Recovered()
    last: _Last | None = None
    for path in disk.list(root):
        if path.suffix == ".tmp":
            disk.remove_directory(path) if path.is_dir() else disk.remove(path)
        elif spare_ordinal(path) is not None:
            _keep_or_remove(disk, path, segment_bytes, found)
        elif (aside := aside_ordinal(path)) is not None:
            found.ordinal = max(found.ordinal, aside)
            kept = [file for file in disk.list(path) if segment_first(file) is not None]
            found.held += sum(disk.size(file) for file in kept)
        elif (named := instance_named(path)) is not None:
            found.ordinal = max(found.ordinal, named[0])
            instance = Instance(*named, source, path)
            loaded = _load(disk, instance)
            if instance.segments or instance.ending is not None:
                found.instances.append(instance)
                last = loaded
            else:
                disk.remove_directory(path)
    if found.instances:
        _go_on(disk, found, last, source)
    for instance in found.instances:
        found.held += sum(segment.size for segment in instance.segments)
        if instance.ending is not None and not instance.ending.declared:
            found.undeclared.append(instance)
    return found


def _keep_or_remove(disk: Disk, path: Path, segment_bytes: int, found: Recovered) -> None:
    if disk.size(path) == segment_bytes:
        found.spares.append(path)
        found.held += segment_bytes
    else:
        disk.remove(path)


def _load(disk: Disk, instance: Instance) -> _Last | None:
    """Fill in what the directory says; its last segment, None where there is no usable one."""
    acked = read_acked(disk, instance.path)
    for path in disk.list(instance.path):
        first = segment_first(path)
        if first is not None:
            instance.segments.append(Segment(path, first, disk.size(path)))
    last = _last_segment(disk, instance)
    first_kept = instance.segments[0].first if instance.segments else 0
    # A segment is deleted only when all of it is acknowledged.
    instance.acked = max(acked, first_kept)
    if last is not None:
        instance.source, instance.end = last.header.source, last.scan.next
        _judge(instance, last.scan)
    elif instance.acked > 0 and instance.ending is None:
        _end(instance, "the segments of the spool are missing", instance.acked, None)
    _noted(disk, instance)
    return last


def _last_segment(disk: Disk, instance: Instance) -> _Last | None:
    segments = instance.segments
    while segments:
        data = disk.read(segments[-1].path)
        first = segments[-1].first
        found = read_header(data)
        if found is not None and found[0].first == first and found[0].instance == instance.id:
            return _Last(segments[-1], found[0], data, scan(data, found[1], first))
        beyond = scan(data, 0, first).beyond
        if beyond is not None:
            _end(instance, "a bad segment header", first, beyond, DAMAGED)
            instance.end = first
            return None
        # The process died between the making of this segment and the first sync in it.
        disk.remove(segments.pop().path)
    return None


def _judge(instance: Instance, found: Scan) -> None:
    if found.beyond is not None:
        _end(instance, "a bad frame among good ones", found.next, found.beyond, DAMAGED)
    elif instance.acked > found.next:
        # To go on would use numbers again that the control API has.
        _end(instance, "records that were acknowledged are missing here", found.next, None)


def _end(instance: Instance, reason: str, first: int, beyond: int | None, aside: str = "") -> None:
    lost = None if beyond is None else beyond - first
    log.error("spool instance `%s` ends at record %d: %s", instance.path.name, first, reason)
    instance.ending = Ending(reason, first, lost, aside)


def _noted(disk: Disk, instance: Instance) -> None:
    """An ending that a former life noted counts for more than what is read now: what lies beyond
    it was declared lost, whether or not it can be read after all."""
    try:
        noted = read_ending(disk, instance.path)
    except (ValueError, TypeError) as error:
        noted = Ending(f"its ending can't be read: {error}", instance.end, None)
    if noted is not None:
        found = instance.ending
        if found is not None and found.first < noted.first:
            lost = None if noted.lost is None else noted.lost + noted.first - found.first
            noted = replace(found, lost=lost)
        instance.ending = noted
        instance.end = min(instance.end, noted.first)
    if instance.ending is not None and instance.ending.aside == CONFLICT:
        instance.acked = instance.end


def _go_on(disk: Disk, found: Recovered, last: _Last | None, source: str) -> None:
    instance = found.instances[-1]
    if instance.ending is not None or last is None or instance.source != source:
        return
    try:
        _write_back(disk, last)
    except OSError as error:
        end = instance.end
        _end(instance, f"its last segment can't be written again: {error}", end, end)
        return
    prev = last.header.prev if last.scan.last is None else b64(payload_hash(last.scan.last))
    found.resumed = Resumed(instance, last.segment, last.scan.end, last.scan.next, prev)


def _write_back(disk: Disk, last: _Last) -> None:
    """Write what was read once more, zeros behind it, and sync. After a failed sync in a former
    life the kernel may show us what the disk does not hold, and whatever we append would hang from
    a record that the next power cut takes away. The same bytes over themselves harm nothing."""
    end = last.scan.end
    if not last.scan.clean:
        log.warning("a torn write at the end of `%s` was cut", last.segment.path.name)
    rest = b"" if last.scan.clean else bytes(len(last.data) - end)
    disk.rewrite(last.segment.path, last.data[:end] + rest)
