"""One process at a time holds a lock, and an error inside is not taken for a lock that is held."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.commands.verify import monitor
from deploy.commands.witness import serve
from policies.ground.process import secret_file
from policies.ground.process.secret_file import UnusableFile
from policies.trail.verdict.outcome import Unusable


def test_a_lock_is_held_by_one_and_can_be_taken_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    handle = secret_file.acquire(path)
    with pytest.raises(BlockingIOError):
        secret_file.acquire(path)
    os.close(handle)
    os.close(secret_file.acquire(path))
    with pytest.raises(NotADirectoryError):
        secret_file.acquire(path / "below")


def test_a_held_lock_is_reported_with_what_is_in_use(tmp_path: Path) -> None:
    for locked, refusal in ((monitor.locked, Unusable), (serve.locked, UnusableFile)):
        path = tmp_path / locked.__module__
        with locked(path), pytest.raises(refusal, match="in use by another"), locked(path):
            pass
        with pytest.raises(refusal, match=r"(?i)no such file"), locked(tmp_path / "absent" / "x"):
            pass
        with pytest.raises(BlockingIOError), locked(path):
            raise BlockingIOError
