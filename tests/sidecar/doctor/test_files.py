"""Who can change or read the sidecar's settings, keys and data."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.config.file import read
from sidecar.doctor.examination import observe
from tests.sidecar.doctor.recorded_host import (
    AGENT,
    KEYS,
    PASSWORD,
    SIDECAR,
    TEXT,
    bare,
    found,
    observed,
    seen,
    write,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may enter; a test's usual folder is only its user's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def told(tmp_path: Path, *checks: str, text: str = TEXT) -> list[tuple[str, str]]:
    return seen(found(observed(tmp_path, text=text), *(checks or ("writable", "readable"))))


def test_files_with_the_right_modes_are_no_finding(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir(mode=0o700)
    (tmp_path / "cache").mkdir(mode=0o700)
    assert told(tmp_path) == []


@pytest.mark.parametrize("name", ["sidecar.yaml", "sidecar.key", "agent.key", "spool", "cache"])
def test_a_file_that_others_may_write_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "spool").mkdir(mode=0o700)
    (tmp_path / "cache").mkdir(mode=0o700)
    context = observed(tmp_path)
    path = tmp_path / name
    path.chmod(0o722 if path.is_dir() else 0o622)
    group = path.stat().st_gid
    assert seen(found(context, "writable")) == [
        ("high", f"`{path}` can be written by anyone"),
        ("medium", f"`{path}` can be written by group {group}"),
    ]


def test_a_folder_above_that_others_may_write_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    context = observed(inner)
    (tmp_path / "a").chmod(0o777)
    assert ("high", f"`{tmp_path / 'a'}` can be written by anyone") in seen(found(context))


def test_a_sticky_folder_protects_files_of_others(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a").chmod(0o1777)
    assert seen(found(observed(inner), "writable")) == []


def test_a_link_is_followed_and_its_own_folder_counts_too(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(0o700)
    there.mkdir(0o700)
    context = observed(here)
    (here / "agent.key").rename(there / "key")
    (here / "agent.key").symlink_to(there / "key")
    there.chmod(0o777)
    assert seen(found(context, "writable"))[0] == ("high", f"`{there}` can be written by anyone")
    there.chmod(0o700)
    here.chmod(0o777)
    assert seen(found(context, "writable"))[0] == ("high", f"`{here}` can be written by anyone")


@needs_root
def test_a_file_that_belongs_to_the_agent_is_found(tmp_path: Path) -> None:
    host = bare()
    context = observed(tmp_path, host)
    os.chown(tmp_path / "sidecar.yaml", AGENT, -1)
    assert seen(found(context, "writable")) == [
        ("high", f"`{tmp_path / 'sidecar.yaml'}` belongs to UID {AGENT}")
    ]
    os.chown(tmp_path / "sidecar.yaml", SIDECAR, -1)
    assert seen(found(context, "writable")) == []
    os.chown(tmp_path / "sidecar.key", AGENT, -1)
    assert len(found(context, "readable")) == 1


def test_a_key_that_others_may_read_is_found(shared: Path) -> None:
    context = observed(shared)
    key = shared / "agent.key"
    key.chmod(0o604)
    [finding] = found(context, "readable")
    assert (finding.severity.value, finding.seen) == ("high", f"`{key}` can be read by anyone")
    assert "agent.key_file" in finding.why
    key.chmod(0o640)
    [finding] = found(context, "readable")
    assert finding.severity.value == "medium"


def test_a_key_in_a_private_folder_is_safe(shared: Path) -> None:
    inner = shared / "a"
    inner.mkdir(0o700)
    context = observed(inner)
    (inner / "agent.key").chmod(0o644)
    assert seen(found(context, "readable")) == []


def test_a_folder_with_records_that_others_may_read_is_found(shared: Path) -> None:
    (shared / "spool").mkdir()
    (shared / "spool").chmod(0o755)
    [(severity, text)] = told(shared, "readable")
    assert severity == "medium"
    assert f"`{shared / 'spool'}` can be read by anyone" in text


def test_a_settings_file_with_a_password_counts_as_a_key(shared: Path) -> None:
    for text, count in ((TEXT, 0), (f"{TEXT}redis: redis://me:{PASSWORD}@127.0.0.1\n", 1)):
        context = observed(shared, text=text)
        (shared / "sidecar.yaml").chmod(0o644)
        findings = found(context, "readable")
        assert len(findings) == count
        assert PASSWORD not in str(findings)
    # One that the environment gives is not in the file.
    file = write(shared)
    file.chmod(0o644)
    given = {"SLUICE_SIDECAR_REDIS": f"redis://me:{PASSWORD}@127.0.0.1"}
    settings = read(file, given, "host")
    assert settings.redis is not None
    assert found(observe(settings, file, bare(), AGENT), "readable") == []


def test_a_missing_file_is_no_finding(tmp_path: Path) -> None:
    write(tmp_path)
    assert not (tmp_path / "spool").exists()
    assert told(tmp_path) == []


def test_no_finding_shows_the_content_of_a_key_file(shared: Path) -> None:
    context = observed(shared)
    shared.chmod(0o777)
    for name in KEYS:
        (shared / name).chmod(0o666)
    text = str(found(context))
    assert "can be written by anyone" in text
    assert not any(key in text for key in KEYS.values())
