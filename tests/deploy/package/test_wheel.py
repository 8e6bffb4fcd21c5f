"""What the wheel and the sdist contain, and that a wheel's only top-level name is `sluice`."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder

from tests.architecture.tree import files
from tests.deploy.package.distribution import ROOT, build

# Useful in a checkout only, or distributions of their own.
LEFT_OUT = (
    "deploy/images/", "deploy/compile/", "deploy/install.py", "deploy/lock.py", "deploy/sdk/",
)  # fmt: skip
SHIPPED = ("policies/", "sidecar/", "control_api/", "deploy/")
OWN = "deploy/package/"
# The sdist can be tested and installed by hash.
BESIDE = ("Makefile", "requirements.lock", "ARCHITECTURE.md", "tests/conftest.py")
BUILT = (2023, 11, 14, 22, 13, 20)
"""The time that the build is told, as a ZIP file has it."""


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


def test_the_sdist_has_every_source_of_the_wheel_and_the_wheel_a_fixed_time(
    wheel: Path,
) -> None:
    builder = SdistBuilder(str(ROOT))
    included = {each.relative_path for each in builder.recurse_included_files()}
    names = {path.relative_to(ROOT).as_posix() for path in files()}
    wanted = {name for name in names if name.startswith((*SHIPPED, "tests/"))} | set(BESIDE)
    missing = wanted - included
    assert not missing
    # Those of an unpacked sdist are others than those of a checkout.
    with zipfile.ZipFile(wheel) as archive:
        assert {each.date_time for each in archive.infolist()} == {BUILT}


@pytest.mark.deep(
    stands_in="test_the_sdist_has_every_source_of_the_wheel_and_the_wheel_a_fixed_time"
)
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
    for name in BESIDE:
        assert (source / name).is_file(), name
