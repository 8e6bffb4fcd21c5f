"""Checks whether the disk has room for what the settings let the sidecar store."""

from collections.abc import Iterator
from pathlib import Path

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.unobservable import Unobservable

_WHY = (
    "a retrieval whose record can't be stored fails: with a full disk, the sidecar answers 503, or "
    "in mode `best_effort` loses records"
)


def disk_space(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report a spool whose disk has less free space than it may still fill, and a cache whose disk
    is full."""
    spool = context.settings.spool
    yield from _lacking(context, spool.dir, spool.max_bytes, "`spool.max_bytes`")
    # The policy set's copy has no limit of its own, and is written anew with each change.
    yield from _lacking(context, context.settings.cache, 1, "`cache`")


def _lacking(
    context: DoctorContext, path: Path, most: int, setting: str
) -> Iterator[DoctorFinding]:
    do = f"free space on the disk of `{path}`, give it a disk of its own, or lower {setting}"
    try:
        needed = max(most - context.host.stored_bytes(path), 1)
        free = context.host.free_bytes(path)
    except Unobservable as error:
        yield DoctorFinding(Severity.UNKNOWN, str(error), _WHY, do)
        return
    if free < needed:
        seen = f"`{path}` has {free} bytes free, but needs {needed}: what {setting} leaves to fill"
        yield DoctorFinding(Severity.LOW, seen, _WHY, do)
