"""Files that others could change or read: the settings, keys, and what the sidecar keeps.

A file is only as safe as every folder above it: who may rename a folder puts another in its place.
"""

import stat
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import chain
from os import stat_result
from pathlib import Path
from typing import Any, NamedTuple

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity

_FOLDERS = ("cache", "spool.dir")


class _Kept(NamedTuple):
    """A path that the settings name, by the key's full name."""

    key: str
    path: Path


def writable(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Whether others could change what the sidecar goes by."""
    kept = [_Kept("the settings file", scene.file), *_paths(scene.settings, "")]
    for path in dict.fromkeys(chain.from_iterable(_above(each.path) for each in kept)):
        status = _status(path)
        if isinstance(status, DoctorFinding):
            yield status
        elif status is not None:
            for severity, how in _open_to(status, scene.trusted):
                yield DoctorFinding(
                    severity,
                    f"`{path}` {how}",
                    "who changes the settings, a key or the spool decides what the agent may read, "
                    "or what is recorded of it",
                    f"chown root '{path}'; chmod go-w '{path}'",
                )


def readable(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Whether others could read a key, or what the sidecar keeps."""
    redis = scene.settings.redis
    if redis is not None and redis.password is not None:
        reason = "it holds the password of Redis"
        yield from _read_by_others(scene.file.resolve(), scene, Severity.HIGH, reason)
    for key, path in _paths(scene.settings, ""):
        if key in _FOLDERS:
            reason = "users, sources and questions lie in it before they are shipped"
            yield from _read_by_others(path.resolve(), scene, Severity.MEDIUM, reason)
        elif "key" in key.rpartition(".")[2]:
            reason = f"it holds the key of `{key}`: whoever has it speaks in its owner's name"
            yield from _read_by_others(path.resolve(), scene, Severity.HIGH, reason)


def _paths(value: Any, name: str) -> Iterator[_Kept]:
    """Every path in the settings, whichever key it stands under."""
    if isinstance(value, Path):
        yield _Kept(name, value)
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        for index, each in enumerate(value):
            yield from _paths(each, f"{name}[{index}]")
    elif is_dataclass(value):
        for field in fields(value):
            below = f"{name}.{field.name}" if name else field.name
            yield from _paths(getattr(value, field.name), below)


def _above(path: Path) -> Iterator[Path]:
    """The path and the folders above it, as it is written and as it really is."""
    for each in dict.fromkeys((path.absolute(), path.resolve())):
        yield each
        yield from each.parents


def _status(path: Path) -> stat_result | DoctorFinding | None:
    """None where there is nothing yet."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return DoctorFinding(
            Severity.UNKNOWN,
            f"`{path}` can't be looked at: {error.strerror}",
            "nobody has seen who may change or read it",
            "run this as root",
        )


def _open_to(status: stat_result, trusted: frozenset[int]) -> Iterator[tuple[Severity, str]]:
    if status.st_uid not in trusted:
        yield Severity.HIGH, f"belongs to UID {status.st_uid}"
    # In a sticky folder such as /tmp nobody can take away what is another's.
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return
    if status.st_mode & stat.S_IWOTH:
        yield Severity.HIGH, "can be written by anyone"
    if status.st_mode & stat.S_IWGRP:
        yield Severity.MEDIUM, f"can be written by group {status.st_gid}"


def _read_by_others(
    path: Path, scene: DoctorContext, severity: Severity, reason: str
) -> Iterator[DoctorFinding]:
    status = _status(path)
    if isinstance(status, DoctorFinding):
        yield status
        return
    if status is None:
        return
    mode = status.st_mode
    whose = None
    if status.st_uid not in scene.trusted:
        whose = f"belongs to UID {status.st_uid}"
    elif mode & stat.S_IROTH and _reached(path, stat.S_IXOTH):
        whose = "can be read by anyone"
    elif mode & stat.S_IRGRP and _reached(path, stat.S_IXGRP | stat.S_IXOTH):
        whose, severity = f"can be read by group {status.st_gid}", Severity.MEDIUM
    if whose is not None:
        yield DoctorFinding(severity, f"`{path}` {whose}", reason, f"chmod go= '{path}'")


def _reached(path: Path, bits: int) -> bool:
    """Whether the folders above let others come as far as `path`."""
    for folder in path.parents:
        status = _status(folder)
        if isinstance(status, stat_result) and not status.st_mode & bits:
            return False
    return True
