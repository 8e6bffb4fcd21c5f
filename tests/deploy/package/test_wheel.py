"""What the wheel and the sdist contain, and that a wheel's only top-level name is `sluice`."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.architecture.tree import files
from tests.deploy.package.distribution import ROOT, build

# Useful in a checkout only, or distributions of their own.
LEFT_OUT = (
    "deploy/images/", "deploy/compile/", "deploy/install.py", "deploy/lock.py", "deploy/sdk/",
)  # fmt: skip
SHIPPED = ("policies/", "sidecar/", "control_api/", "deploy/")
OWN = "deploy/package/"


def test_the_wheel_has_every_file_of_the_packages_below_one_name(wheel: Path) -> None:
    expected = set()
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(OWN):
            expected.add(name.removeprefix(OWN))
        elif name.startswith(SHIPPED) and not name.startswith(LEFT_OUT):
            expected.add(f"sluice/lib/{name}")
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


@pytest.mark.deep(stands_in="test_the_wheel_has_every_file_of_the_packages_below_one_name")
def test_a_second_build_and_one_from_the_sdist_give_the_same_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    sdist = build("sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        # Python before 3.11.4 has no such filter.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert build("wheel", tmp_path / "again", source).read_bytes() == wheel.read_bytes()
    # The sdist can be tested and installed by hash.
    for name in ("Makefile", "requirements.lock", "ARCHITECTURE.md", "tests/conftest.py"):
        assert (source / name).is_file(), name
