"""Checks the protection of the sidecar's data: agent and sidecar run as different users, and
neither as root; no other user can change or read the sidecar's files; and the disk has room for
them.

A file is only as safe as every folder above it: a user who may rename a folder can replace the
file.
"""

import stat
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import chain
from os import stat_result
from pathlib import Path
from typing import Any, NamedTuple

from policies.ground.doctor_finding import DoctorFinding, Severity
from policies.ground.errors import worded
from sidecar.config.file import holds_password
from sidecar.doctor.examination import DoctorContext
from sidecar.doctor.host import Unobservable


def users(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report an agent whose user is unknown, is root, or owns the process that listens on the
    sidecar's address; and a sidecar that runs as root."""
    agent, sockets, uids = context.agent_uid, context.sockets, context.sidecar_uids
    unseen = isinstance(sockets, Unobservable)
    rows: tuple[tuple[bool, Severity, str, str, str], ...] = (
        (agent is None, Severity.UNKNOWN, "the agent's user is not known",
            "the agent's access can be tested only as its user", "add `--agent-uid UID`"),
        (agent == 0, Severity.HIGH, "the agent is root",
            "root can read every key and remove any rule of the packet filter",
            "run the agent as a user of its own, without capabilities"),
        (unseen, Severity.UNKNOWN, f"the listening sockets can't be read: {sockets}",
            "the sidecar may run as the agent's user",
            "run this where the sidecar runs, on Linux"),
        (not unseen and not uids, Severity.UNKNOWN,
            f"nothing listens on `{context.settings.listen}` in this network namespace",
            "the sidecar may run as the agent's user",
            "start the sidecar, and run this in the same network namespace"),
        (agent in uids and agent != 0, Severity.HIGH,
            f"the sidecar runs as UID {agent}, the agent's",
            "the agent can read the sidecar's keys, stop it, and pass the packet filter like it",
            "run the sidecar as a user of its own"),
        (0 in uids, Severity.MEDIUM, "the sidecar runs as root",
            ("a fault in the sidecar gives away the whole host, and rules that exempt its user let "
            "every process of root pass"),
            "run the sidecar as a user of its own, without capabilities"),
    )  # fmt: skip
    for applies, severity, seen, why, do in rows:
        if applies:
            yield DoctorFinding(severity, seen, why, do)


_DATA_FOLDERS = ("cache", "spool.dir")


class _SettingPath(NamedTuple):
    key: str
    path: Path


def writable(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report files and folders that the sidecar relies on and that other users can change."""
    paths = [_SettingPath("the settings file", context.file), *_paths(context.settings, "")]
    for path in dict.fromkeys(chain.from_iterable(_with_parents(each.path) for each in paths)):
        status = _status(path)
        if isinstance(status, DoctorFinding):
            yield status
        elif status is not None:
            for severity, how in _write_access(status, context.trusted_uids):
                yield DoctorFinding(
                    severity,
                    f"`{path}` {how}",
                    "a user who can change the settings, a key or the spool decides what the "
                    "agent may read, or what the audit trail says about it",
                    f"chown root '{path}'; chmod go-w '{path}'",
                )


def readable(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report files with a key, a password or the sidecar's data that other users can read."""
    if holds_password(context.file):
        reason = "it contains the password of Redis"
        for found in _read_by_others(context.file.resolve(), context, Severity.HIGH, reason):
            # The sidecar's own user may be one of those others, as under systemd.
            yield found._replace(
                do="give the address of Redis in SLUICE_SIDECAR_REDIS, from a file that only root "
                f"reads; or {found.do}, if the sidecar can read the file then"
            )
    for key, path in _paths(context.settings, ""):
        if key in _DATA_FOLDERS:
            reason = "it contains users, sources and queries that are not yet shipped"
            yield from _read_by_others(path.resolve(), context, Severity.MEDIUM, reason)
        elif "key" in key.rpartition(".")[2]:  # `key_file`, `key`, and later ones like them
            reason = f"it contains the key of `{key}`, and its holder can act as the key's owner"
            yield from _read_by_others(path.resolve(), context, Severity.HIGH, reason)


def _paths(value: Any, name: str) -> Iterator[_SettingPath]:
    # Found by type, so that a setting added later is checked too.
    if isinstance(value, Path):
        yield _SettingPath(name, value)
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):  # a list, not a NamedTuple
        for index, each in enumerate(value):
            yield from _paths(each, f"{name}[{index}]")
    elif is_dataclass(value):
        for field in fields(value):
            below = f"{name}.{field.name}" if name else field.name
            yield from _paths(getattr(value, field.name), below)


def _with_parents(path: Path) -> Iterator[Path]:
    """Yield the path and all folders above it, both as written and with symbolic links resolved."""
    # A user who can replace a link decides what it points to, so both ways count.
    for each in dict.fromkeys((path.absolute(), path.resolve())):
        yield each
        yield from each.parents


def _status(path: Path) -> stat_result | DoctorFinding | None:
    """Return the status of `path`; a finding if it can't be read, or None if nothing exists
    there."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return DoctorFinding(
            Severity.UNKNOWN,
            f"`{path}` can't be examined: {worded(error)}",
            "other users may be able to change or read it",
            "run this as root",
        )


def _write_access(status: stat_result, trusted: frozenset[int]) -> Iterator[tuple[Severity, str]]:
    if status.st_uid not in trusted:
        yield Severity.HIGH, f"belongs to UID {status.st_uid}"
    # In a sticky folder such as /tmp, users can't remove or rename what belongs to others.
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return
    if status.st_mode & stat.S_IWOTH:
        yield Severity.HIGH, "can be written by anyone"
    if status.st_mode & stat.S_IWGRP:
        yield Severity.MEDIUM, f"can be written by group {status.st_gid}"


def _read_by_others(
    path: Path, context: DoctorContext, severity: Severity, reason: str
) -> Iterator[DoctorFinding]:
    status = _status(path)
    if isinstance(status, DoctorFinding):
        yield status
    if not isinstance(status, stat_result):
        return
    mode, access = status.st_mode, None
    if status.st_uid not in context.trusted_uids:
        access = f"belongs to UID {status.st_uid}"
    elif mode & stat.S_IROTH and _is_reachable(path, stat.S_IXOTH):
        access = "can be read by anyone"
    elif mode & stat.S_IRGRP and _is_reachable(path, stat.S_IXGRP | stat.S_IXOTH):
        access, severity = f"can be read by group {status.st_gid}", Severity.MEDIUM
    if access is not None:
        yield DoctorFinding(severity, f"`{path}` {access}", reason, f"chmod go= '{path}'")


def _is_reachable(path: Path, bits: int) -> bool:
    """Return whether every folder above `path` grants one of the execute permissions in `bits`."""
    statuses = (_status(folder) for folder in path.parents)
    return all(each.st_mode & bits for each in statuses if isinstance(each, stat_result))


_WHY_ROOM = (
    "a retrieval whose record can't be stored fails: with a full disk, the sidecar answers 503, or "
    "in mode `best_effort` loses records"
)


def disk_space(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report a spool that may still grow by more than its disk has free, and a cache whose disk is
    full."""
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
        yield DoctorFinding(Severity.UNKNOWN, str(error), _WHY_ROOM, do)
        return
    if free < needed:
        seen = f"`{path}` has {free} bytes free, but needs {needed}: what {setting} leaves to fill"
        yield DoctorFinding(Severity.LOW, seen, _WHY_ROOM, do)
