"""The wheel for one platform, with the core compiled. Building it takes some minutes, so only a
run on the compiled core does it: `make test COMPILED=1`."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from deploy.compile.modules import FILES, GROUPS
from deploy.images.root import leave_out
from policies.ground.core_form import CORE_FORM
from tests.deploy.launcher import environ
from tests.deploy.package.distribution import (
    OUTSIDE,
    ROOT,
    build_compiled,
    empty_venv,
    install,
    lend_libraries,
)

pytestmark = pytest.mark.skipif(
    CORE_FORM != "compiled", reason="the core runs as Python here; make test COMPILED=1"
)


@pytest.fixture(scope="module")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_compiled(tmp_path_factory.mktemp("compiled wheel"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        return {name: archive.read(name) for name in names}


def test_the_compiled_wheel_is_the_pure_one_plus_the_extension_modules(
    wheel: Path, compiled_wheel: Path
) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "-none-any" not in compiled_wheel.name
    pure, compiled = contents(wheel), contents(compiled_wheel)
    added = {name: content for name, content in compiled.items() if name not in pure}
    assert {name: compiled[name] for name in pure} == pure
    # One for each module, and those with the code. Those of this tree were built elsewhere and at
    # another time: the same input gives the same bytes.
    assert len(added) == len(FILES) + len(GROUPS)
    for name, content in added.items():
        assert (ROOT / name.removeprefix("sluice/lib/")).read_bytes() == content, name


def test_the_compiled_wheel_installs_and_reports_that_it_is_compiled(
    compiled_wheel: Path, tmp_path: Path
) -> None:
    python = empty_venv(tmp_path / "a venv")
    install(compiled_wheel, python)
    lend_libraries(python)
    sluice = str(python.parent / "sluice")
    said = subprocess.check_output([sluice, "--version"], cwd=tmp_path, env=environ(**OUTSIDE))
    assert b", the core is compiled\n" in said
    script = (
        "import sys; sys.path.insert(0, sys.argv[1] + '/sluice/lib')\n"
        "from policies import evaluate; print(evaluate.__file__)"
    )
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    command = [str(python), "-c", script, str(packages)]
    loaded = subprocess.check_output(command, cwd=tmp_path, env=environ(**OUTSIDE))
    assert loaded.startswith(str(packages).encode())
    assert loaded.endswith(b".so\n")


def test_the_control_apis_image_runs_compiled_without_the_sidecar(
    compiled_wheel: Path, tmp_path: Path
) -> None:
    """What the image's build does with the wheel, without a container."""
    python = empty_venv(tmp_path / "venv")
    install(compiled_wheel, python)
    lend_libraries(python)
    leave_out(python.parents[1], "sidecar")
    (library,) = python.parents[1].glob("lib/python*/site-packages/sluice/lib")
    assert [each.name.split(".")[0] for each in library.glob("*.so")] == ["sluice_core__mypyc"]
    assert not (library / "sidecar").exists()
    sluice = str(python.parent / "sluice")
    said = subprocess.check_output([sluice, "--version"], cwd=tmp_path, env=environ(**OUTSIDE))
    assert b", the core is compiled\n" in said
    helped = subprocess.run(
        [sluice, "control", "--help"], cwd=tmp_path, env=environ(**OUTSIDE), check=True
    )
    assert helped.returncode == 0
