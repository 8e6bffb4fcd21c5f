"""Decisions in a file: rotation, deaths in the middle of a line, a full disk, two writers."""

from __future__ import annotations

import fcntl
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from control_api.audit.export_push.file import FileSender
from control_api.audit.export_push.sender import TargetAway
from control_api.security.export_targets import ExportTarget
from tests.control_api.audit.export_push.receiver import decide, lag, metric
from tests.support.control_api import running_control_api
from tests.support.waiting import until


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def url(path: Path) -> str:
    return f"file://{path}?format=ecs"


def ids(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [json.loads(line)["event"]["id"] for line in path.read_bytes().splitlines()]


def has(path: Path, made: list[str]) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= len(made)


@pytest.mark.deep(stands_in="test_a_file_that_was_renamed_or_removed_is_made_anew")
def test_a_rotated_file_is_made_anew(tmp_path: Path) -> None:
    target, old = tmp_path / "decisions", tmp_path / "decisions.1"
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=url(target)) as api:
        first = decide(api, 10)
        until("the records are in the file", partial(has, target, first))
        target.rename(old)
        second = decide(api, 10)
        until("the records are in the file", partial(has, target, second))
        target.unlink()
        third = decide(api, 10)
        until("the records are in the file", partial(has, target, third))
    assert (ids(old), ids(target)) == (first, third)


@pytest.mark.deep(stands_in="test_half_a_line_is_cut_off_before_the_first_write")
@pytest.mark.parametrize("torn", [b'{"event":', b'{"a":1}\n{"event":', b"x" * 200_000])
def test_half_a_line_left_by_a_killed_process_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    target = tmp_path / "decisions"
    target.write_bytes(torn)
    whole = torn[: torn.rfind(b"\n") + 1]
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=url(target)) as api:
        made = decide(api, 3)
        until(
            "the records are in the file",
            lambda: target.read_bytes().count(b"\n") == 3 + whole.count(b"\n"),
        )
    assert target.read_bytes().startswith(whole)
    rest = target.read_bytes()[len(whole) :].splitlines()
    assert [json.loads(line)["event"]["id"] for line in rest] == made


@pytest.mark.deep(stands_in="test_a_locked_file_is_not_written_to")
def test_a_file_that_another_process_has_locked_is_written_once_it_is_free(tmp_path: Path) -> None:
    target = tmp_path / "decisions"
    with target.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with running_control_api(tmp_path, SLUICE_EXPORT_URLS=url(target)) as api:
            made = decide(api, 3)
            until("an export has failed", lambda: metric(api, "sluice_export_failures_total") >= 1)
            assert lag(api) >= 3
            fcntl.flock(other, fcntl.LOCK_UN)
            until("the records are in the file", partial(has, target, made))
    assert ids(target) == made


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may be larger, for a moment: a write stops in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_leaves_whole_lines_and_nothing_twice(tmp_path: Path) -> None:
    target = tmp_path / "decisions"
    sender = FileSender(ExportTarget.parse(url(target)))
    lines = [b'{"n":%d}\n' % number for number in range(100, 1000)]
    await sender.send(lines[:10])
    await sender.settle()
    with full_disk(900), pytest.raises(TargetAway, match="EFBIG"):
        await sender.send(lines[10:])
    assert target.stat().st_size == 900
    await sender.abandon()
    assert target.read_bytes() == b"".join(lines[:10])
    await sender.send(lines[10:])
    await sender.settle()
    assert target.read_bytes() == b"".join(lines)
    await sender.abandon()
    assert target.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("torn", [b'{"event":', b'{"a":1}\n{"event":', b"x" * 200_000])
async def test_half_a_line_is_cut_off_before_the_first_write(tmp_path: Path, torn: bytes) -> None:
    target = tmp_path / "decisions"
    target.write_bytes(torn)
    sender = FileSender(ExportTarget.parse(url(target)))
    await sender.send([b"{}\n"])
    await sender.settle()
    await sender.abandon()
    assert target.read_bytes() == torn[: torn.rfind(b"\n") + 1] + b"{}\n"


async def test_a_file_that_was_renamed_or_removed_is_made_anew(
    tmp_path: Path, usual_umask: None
) -> None:
    target, old = tmp_path / "decisions", tmp_path / "decisions.1"
    sender = FileSender(ExportTarget.parse(url(target)))
    for line in (b"1\n", b"2\n", b"3\n"):
        await sender.send([line])
        await sender.settle()
        assert target.read_bytes() == line
        assert target.stat().st_mode & 0o777 == 0o640
        if line == b"1\n":
            target.rename(old)
        else:
            target.unlink()
    await sender.abandon()
    assert old.read_bytes() == b"1\n"


async def test_a_locked_file_is_not_written_to(tmp_path: Path) -> None:
    target = tmp_path / "decisions"
    sender = FileSender(ExportTarget.parse(url(target)))
    with target.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(TargetAway):
            await sender.send([b"{}\n"])
        await sender.abandon()
        assert target.read_bytes() == b""
    await sender.send([b"{}\n"])
    await sender.settle()
    await sender.abandon()
    assert target.read_bytes() == b"{}\n"


async def test_a_pipe_is_not_written_to(tmp_path: Path) -> None:
    target = tmp_path / "decisions"
    sender = FileSender(ExportTarget.parse(url(target)))
    os.mkfifo(target)
    with pytest.raises(TargetAway, match="not a regular file"):
        await sender.send([b"{}\n"])
