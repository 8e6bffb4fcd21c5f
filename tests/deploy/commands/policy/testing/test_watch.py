"""`--watch` runs again after each save, however an editor saves. A real process, and real files; a
test waits for what it prints, without a limit of its own but one for a process that hangs."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from deploy.commands.policy.testing import state, wait_for_change
from tests.deploy.commands.policy.testing.trees import FAILING, POLICIES, TESTS, start, tree, write

PASSED, FAILED = "5 cases, 5 passed, 0 failed", "1 cases, 0 passed, 1 failed"
HUNG = 300.0
"""Seconds after which a process that prints nothing more is killed."""
Save = Callable[[Path, str], None]


@contextmanager
def watching(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = start(path, "--watch", *options)
    timer = Timer(HUNG, process.kill)
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def read_to(process: subprocess.Popen[str], begins: str) -> list[str]:
    """Return the lines up to the first that begins so."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(begins):
            return lines
    raise AssertionError(f"ended without `{begins}`: {lines}")


def run_of(process: subprocess.Popen[str]) -> str:
    """The summary of the next run, once it waits again."""
    return read_to(process, "waiting for a change")[-2]


def until_it_says(process: subprocess.Popen[str], said: str) -> None:
    """Wait for a run with this summary. One before it may have seen a file between two steps."""
    while said not in run_of(process):
        pass


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def renamed(path: Path, text: str) -> None:
    """As most editors, git and `sed -i` do."""
    fresh = path.with_name(f".{path.name}.tmp")
    fresh.write_text(text)
    fresh.replace(path)


def renamed_in_sight(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.tmp123")
    fresh.write_text(text)
    fresh.replace(path)


def deleted_and_created(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def with_backup(path: Path, text: str) -> None:
    """As vim does with `backupcopy=no`: a probe, the old file as a backup, a new file."""
    probe = path.with_name("4913")
    probe.touch()
    probe.unlink()
    backup = path.with_name(f"{path.name}~")
    path.rename(backup)
    path.write_text(text)
    backup.unlink()


def with_copied_backup(path: Path, text: str) -> None:
    """As vim does with `backupcopy=yes`, with a swap file beside it."""
    swap = path.with_name(f".{path.name}.swp")
    swap.write_bytes(b"b0VIM")
    path.with_name(f"{path.name}~").write_text(path.read_text())
    with path.open("r+") as file:
        file.truncate(0)
        file.write(text)
    swap.unlink()


def same_size_and_time(path: Path, text: str) -> None:
    """As `cp -p` or `rsync -t` may leave it: only the inode and its own time tell."""
    before = path.stat()
    fresh = path.with_name(f".{path.name}.tmp")
    fresh.write_text(text.ljust(before.st_size, "\n"))
    os.utime(fresh, ns=(before.st_atime_ns, before.st_mtime_ns))
    fresh.replace(path)


SAVES: list[Save] = [
    in_place,
    renamed,
    renamed_in_sight,
    deleted_and_created,
    with_backup,
    with_copied_backup,
    same_size_and_time,
]


@pytest.mark.parametrize("save", SAVES)
def test_each_way_to_save_is_a_change(tmp_path: Path, save: Save) -> None:
    root = tree(tmp_path)
    before = state(root)
    save(root / "default/lending/loans_test.yaml", FAILING)
    assert state(root) != before


def test_each_way_to_save_runs_the_tests_again(tmp_path: Path) -> None:
    root = tree(tmp_path)
    tests = root / "default/lending/loans_test.yaml"
    with watching(tests) as process:
        until_it_says(process, PASSED)
        for number, save in enumerate(SAVES):
            text, said = (FAILING, FAILED) if number % 2 == 0 else (TESTS, PASSED)
            save(tests, text)
            until_it_says(process, said)


def test_a_policy_a_new_file_and_a_removed_one_are_changes(tmp_path: Path) -> None:
    root = tree(tmp_path)
    with watching(root) as process:
        until_it_says(process, PASSED)
        write(root, {"default/lending/loans.yaml": POLICIES.replace("contracts", "receipts")})
        until_it_says(process, "5 cases, 4 passed, 1 failed")
        write(root, {"default/deep/down/more_test.yaml": FAILING})
        until_it_says(process, "6 cases, 4 passed, 2 failed")
        (root / "default/lending/loans_test.yaml").unlink()
        until_it_says(process, FAILED)


def test_a_fault_is_reported_and_the_watch_continues(tmp_path: Path) -> None:
    root = tree(tmp_path)
    tests = root / "default/lending/loans_test.yaml"
    with watching(root) as process:
        run_of(process)
        tests.write_text("tests: 1\n")
        until_it_says(process, f"error: {tests}:1: tests: must be a list")
        tests.unlink()
        until_it_says(process, "holds no file that ends in `_test.yaml`")
        tests.write_text(TESTS)
        until_it_says(process, PASSED)


@pytest.mark.parametrize(("tests", "code"), [(TESTS, 0), (FAILING, 1), ("tests: 1\n", 2)])
def test_ctrl_c_ends_the_watch_with_the_code_of_the_last_run(
    tmp_path: Path, tests: str, code: int
) -> None:
    with watching(tree(tmp_path, tests)) as process:
        run_of(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(HUNG) == code


def test_a_path_that_is_absent_is_not_watched(tmp_path: Path) -> None:
    with watching(tmp_path / "none") as process:
        assert read_to(process, "sluice policy:")[-1].endswith("none` does not exist")
        assert process.wait(HUNG) == 2


def test_a_half_saved_file_is_tested_once_it_is_whole(tmp_path: Path) -> None:
    """The clock is the pauses: between two looks an editor takes its next step."""
    root = tree(tmp_path)
    tests = root / "default/lending/loans_test.yaml"
    known = state(root)
    todo: list[Callable[[], object]] = [
        lambda: None,
        tests.unlink,
        lambda: tests.write_text(""),
        lambda: tests.write_text(FAILING),
        lambda: None,
    ]
    steps = iter(todo)
    wait_for_change(root, known, lambda _: next(steps)())
    assert next(steps, None) is None
    assert tests.read_text() == FAILING


def test_hidden_files_and_other_kinds_are_no_change(tmp_path: Path) -> None:
    root = tree(tmp_path)
    before = state(root)
    write(root, {".git/x.yaml": "", "default/.x.yaml": "", "default/notes.txt": "", "a.yaml~": ""})
    assert state(root) == before


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    """As Kubernetes mounts files."""
    root = tree(tmp_path / "mounted")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/default").symlink_to(root / "default")
    (root / "default/up").symlink_to(tmp_path / "tree")
    found = {Path(path).name for path in state(tmp_path / "tree")}
    assert found == {"loans.yaml", "loans_test.yaml"}
