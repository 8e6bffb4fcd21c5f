"""Makes the second and third layer of an image: the libraries, and Sluice itself.

`python -m deploy.images.root NAME` runs in the build. At the end it checks all three layers
together: no shared library may be missing, and `sluice` must start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.images import sbom
from deploy.images.layout import (
    DATA,
    IMAGES,
    LAYERS,
    LIBRARIES,
    SBOM,
    SLUICE,
    SYSTEM,
    USER,
    VENV,
    WHEELS,
)
from deploy.images.libraries import install, pip
from deploy.images.system import MERGED, unpack

_PYTHON = "python3.11"
# Tables of places and carriers, a fifth of the image when compiled. Masking does not use them.
_NEVER_IMPORTED = "phonenumbers/(geodata|carrierdata|tzdata)"
_CHECKED = Path("/image/checked")


class LibraryMissing(Exception):
    """a shared library is missing; add the Debian package that has it to `layout.py`"""


def main(image: str) -> int:
    """Make both layers of `image` in the folders `LIBRARIES` and `SLUICE`."""
    contents = IMAGES[image]
    wheel = next(WHEELS.glob("sluice_governance-*.whl"))
    if contents.packages:
        unpack(contents.packages, LIBRARIES)
        for name in MERGED:  # the first layer has these links
            (LIBRARIES / name).unlink()
    _make_venv()
    install(VENV, contents.extras)
    _strip_scripts()
    _compile(VENV, VENV)
    _compile(SYSTEM / f"usr/lib/{_PYTHON}", Path(f"/usr/lib/{_PYTHON}"))
    shutil.copytree(VENV, LIBRARIES / VENV.relative_to("/"), symlinks=True)
    pip(VENV, "install", "--no-deps", "--no-index", "--no-compile", str(wheel))
    leave_out(VENV, contents.left_out)
    _compile(VENV, VENV)
    _copy_new(VENV, LIBRARIES, SLUICE)
    bill = SLUICE / SBOM
    bill.parent.mkdir(parents=True)
    bill.write_text(sbom.describe(image, VENV, LAYERS), "utf-8")
    for layer in LAYERS:
        _normalise(layer)
    _check()
    return 0


def leave_out(venv: Path, service: str) -> None:
    """Remove the Python package of a service from the installed Sluice, and the shared libraries of
    its compiled modules."""
    package = next(venv.rglob(f"sluice/lib/{service}"))
    shutil.rmtree(package)
    for library in package.parent.glob(f"sluice_{service}__mypyc.*"):
        library.unlink()


def _make_venv() -> None:
    """Make a virtual environment as Python's `venv` does, but without pip and the activation
    scripts."""
    (VENV / f"lib/{_PYTHON}/site-packages").mkdir(parents=True)
    (VENV / "bin").mkdir()
    (VENV / "bin/python").symlink_to(f"/usr/bin/{_PYTHON}")
    (VENV / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")


def _strip_scripts() -> None:
    """Remove the commands that libraries install: an image needs none of them, and an attacker
    could use them."""
    for script in (VENV / "bin").iterdir():
        if script.name != "python":
            script.unlink()


def _compile(folder: Path, place: Path) -> None:
    """Compile all modules in `folder` to bytecode, since the image's root is read-only at run time.
    `place` is the folder's path in the image."""
    # `unchecked-hash`: no module's time is in the result, and none is compared at an import.
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += ["-x", _NEVER_IMPORTED]
    if folder != place:
        command += ["-s", str(folder), "-p", str(place)]
    subprocess.run([*command, str(folder)], check=True)


def _copy_new(source: Path, without: Path, target: Path) -> None:
    """Copy the files that are in `source` but not yet in the layer `without` into the layer
    `target`."""
    for path in sorted(source.rglob("*")):
        inside = path.relative_to("/")
        if path.is_dir() or os.path.lexists(without / inside):
            continue
        (target / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target / inside, follow_symlinks=False)


def _normalise(layer: Path) -> None:
    """Make a layer reproducible: every file gets the same time, no set-user-id or similar bits, and
    write permission only for its owner."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in [layer, *layer.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o755)
            if path.stat().st_uid != USER:
                os.chown(path, 0, 0)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def _check() -> None:
    for layer in LAYERS:
        shutil.copytree(layer, _CHECKED, symlinks=True, dirs_exist_ok=True)
    loader = next(_CHECKED.glob("lib*/ld-linux-*.so.*")).relative_to(_CHECKED)
    for path in sorted(_CHECKED.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        inside = str(path.relative_to(_CHECKED))
        found = subprocess.run(
            ["chroot", str(_CHECKED), f"/{loader}", "--list", f"/{inside}"],
            check=False,
            capture_output=True,
            text=True,
        )
        if "not found" in found.stdout + found.stderr:
            raise LibraryMissing(f"{LibraryMissing.__doc__}: {inside}: {found.stdout}")
    subprocess.run(
        [
            "chroot",
            f"--userspec={USER}:{USER}",
            str(_CHECKED),
            str(VENV / "bin/sluice"),
            "--version",
        ],
        check=True,
    )
    shutil.rmtree(_CHECKED)
    assert (SYSTEM / DATA).stat().st_uid == USER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
