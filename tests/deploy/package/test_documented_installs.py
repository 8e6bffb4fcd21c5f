"""The README's ways to install, from a wheel in a folder instead of an index. The libraries that
the wheel depends on are lent. Of the lock's part only the form is checked: fetching it takes an
index."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.deploy.launcher import environ
from tests.deploy.package.distribution import OUTSIDE, ROOT, SITE_PACKAGES
from tests.support import postgres
from tests.support.control_api import running_control_api
from tests.support.documents import commands, paste, put

PAGE = "deploy/README.md"
# pip itself downloads what a requirement's hash allows, from an index that tests don't need.
PIP = """\
import pathlib, re, subprocess, sys
if "-r" not in sys.argv:
    pip = [sys.executable, "-m", "pip", "--python", "target/bin/python"]
    sys.exit(subprocess.call([*pip, *sys.argv[1:]]))
assert sys.argv[1:5] == ["install", "--no-deps", "--require-hashes", "-r"], sys.argv
text = pathlib.Path(sys.argv[5]).read_text()
pins = re.findall(r"(?m)^[\\w.-]+==", text)
assert len(pins) > 5 and text.count("--hash=sha256:") >= len(pins)
"""
# Says which version a service would start with: no systemd is here.
SYSTEMCTL = """\
#!/bin/sh
echo "$@" "$(readlink "$LINK")"
"""


def settings(wheel: Path, folder: Path) -> dict[str, str]:
    """pip finds the wheel, in the folder and by its name, and nothing else. The commands of the
    folder come first."""
    (folder / wheel.name).symlink_to(wheel)
    return environ(
        **OUTSIDE,
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(wheel.parent),
        PIP_NO_DEPS="1",
        PATH=f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    )


def installed(title: str, place: Path) -> str:
    """The block with another folder. Once pip has installed the wheel, the environment is lent the
    tests' libraries; before that, pip would find the checkout among them."""
    text = commands(PAGE, title).replace("/opt/sluice", str(place))
    lent = rf'echo "{SITE_PACKAGES}" > "$(echo \2/lib/python3*/site-packages)/lent.pth"'
    return re.sub(r"(?m)^((\S+)/bin/pip install .*)$", rf"\1\n{lent}", text)


@pytest.mark.deep(
    stands_in="tests/deploy/package/test_installed.py::test_the_installed_command_prints_a_sidecar_s_settings_as_documented"
)
def test_a_sidecar_is_installed_and_prints_its_settings(wheel: Path, tmp_path: Path) -> None:
    script = installed("install for a sidecar", tmp_path / "sluice")
    done = paste(script, tmp_path, settings(wheel, tmp_path))
    assert done.returncode == 0, done.stderr
    assert "\nlisten: 127.0.0.1:8710\n" in (tmp_path / "sidecar.yaml").read_text()


@pytest.mark.deep(
    stands_in="tests/deploy/package/test_installed.py::test_the_installed_command_writes_the_units_as_documented"
)
def test_the_installed_command_writes_the_units(
    wheel: Path, tmp_path: Path, migrated_url: str
) -> None:
    if not os.access("/opt", os.W_OK):
        pytest.skip("can't write to /opt, and units hide the folders that others may write to")
    host = tmp_path / "host"
    put(tmp_path / "bin", "systemctl", SYSTEMCTL)
    with (
        TemporaryDirectory(dir="/opt", prefix="sluice-test-") as folder,
        running_control_api(tmp_path / "api") as api,
    ):
        place = Path(folder, "sluice")
        environment = {**settings(wheel, tmp_path), "LINK": str(place)}
        script = installed("systemd", place).replace("--dir /\n", f"--dir {host}\n")
        done = paste(script, tmp_path, environment)
        assert done.returncode == 0, done.stderr
        # There is one version to test with, and one service that both waits ask.
        script = installed("upgrade a host", place).replace(
            "./sluice_governance-$VERSION-py3-none-any.whl", f"./{wheel.name}"
        )
        script = script.replace("postgresql+asyncpg://sluice:…@db/sluice", migrated_url)
        script = script.replace(
            "postgresql+asyncpg://sluice_owner:…@db/sluice", postgres.owned(migrated_url)
        )
        back = installed("roll back a host", place)
        script = re.sub(r"--port \d+", f"--port {api.port}", script + back)
        upgraded = paste(script, tmp_path, environment)
    assert upgraded.returncode == 0, upgraded.stderr
    # The database is migrated before, and each service restarts with what the link leads to.
    assert "nothing to do" in upgraded.stdout
    restarts = [line for line in upgraded.stdout.splitlines() if line.startswith("restart ")]
    new, old = "sluice-0.2.0", "sluice-0.1.0"
    assert restarts == [
        f"restart sluice-control {new}",
        f"restart sluice-sidecar@NAME {new}",
        f"restart sluice-sidecar@NAME {old}",
        f"restart sluice-control {old}",
    ]
    unit = (host / "etc/systemd/system/sluice-sidecar@.service").read_text()
    # The link and not the folder of the version, which an upgrade replaces.
    assert f"ExecStart={place}/bin/sluice sidecar" in unit


@pytest.mark.deep(
    stands_in="tests/deploy/test_lock.py::test_the_documented_command_prints_the_part_with_its_hashes"
)
def test_the_lock_s_part_and_the_wheel_are_installed_by_hash(wheel: Path, tmp_path: Path) -> None:
    # Not in the first line of a script: that path may hold a blank.
    put(tmp_path / "bin", "pip", f'#!/bin/sh\nexec "{sys.executable}" "$0.py" "$@"\n')
    put(tmp_path / "bin", "pip.py", PIP)
    put(tmp_path / "bin", "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script = commands(PAGE, "install by hash")
    prepared = f'"{sys.executable}" -m venv target\n{script}'
    # In a checkout, where `deploy.lock` is.
    settled = settings(wheel, tmp_path) | {"PYTHONPATH": str(ROOT)}
    (tmp_path / "requirements.lock").symlink_to(ROOT / "requirements.lock")
    done = paste(prepared, tmp_path, settled)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target/bin/sluice").is_file()
