"""The command line that `python -m deploy.images` hands to the tool, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.images.__main__ import main
from policies import __version__

BASE = f"debian:bookworm-slim@sha256:{'a' * 64}"
RECORDER = """#!/bin/sh
printf '%s\\n' "$@" >> "$(dirname "$0")/asked"
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `buildah` that notes its arguments. Returns the file with them."""
    program = tmp_path / "buildah"
    program.write_text(RECORDER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    return tmp_path / "asked"


def test_both_images_are_built_with_the_same_time_and_base(
    tool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--base", BASE, "--tool", "buildah"]) == 0
    asked = tool.read_text().splitlines()
    assert asked.count("build") == 2
    assert asked.count(f"BASE={BASE}") == 2
    assert asked.count("SOURCE_DATE_EPOCH=1700000000") == 2
    assert asked.count("--timestamp") == 2
    assert asked.count(f"VERSION={__version__}") == 2
    assert capsys.readouterr().out.split() == [
        f"sluice/sidecar:{__version__}",
        f"sluice/control:{__version__}",
    ]


def test_secrets_and_further_options_are_passed_on(tool: Path, tmp_path: Path) -> None:
    secret = tmp_path / "pip.conf"
    arguments = ["--base", BASE, "--tool", "buildah", "--target", "sidecar"]
    assert main([*arguments, "--pip-config", str(secret), "--no-cache"]) == 0
    asked = tool.read_text().splitlines()
    assert asked.count("build") == 1
    assert f"id=pip.conf,src={secret}" in asked
    assert "--no-cache" in asked


@pytest.mark.parametrize("base", ["debian:bookworm", "debian@sha256:1", f"{BASE} ", ""])
def test_a_base_without_a_digest_is_refused_before_the_tool_runs(
    tool: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--base", base]) == 1
    assert "--base must end in `@sha256:<digest>`" in capsys.readouterr().err
    assert not tool.exists()


def test_a_machine_without_a_tool_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--base", BASE]) == 1
    assert "install one of them" in capsys.readouterr().err
