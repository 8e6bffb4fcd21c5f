"""`make package`: builds the pure wheel and the sdist into `dist`, and for each supported Python
that is found a wheel with the core compiled. It tries both wheels on each: it installs the locked
versions into an empty environment, starts `sluice up`, and runs the commands that this prints.
Needs an index, unlike the tests, and for the compiled wheels a C compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.compile.compiler import missing
from deploy.install import LOCK
from deploy.lock import part
from tests.deploy.launcher import paste, up
from tests.deploy.package.distribution import (
    OUTSIDE,
    ROOT,
    build,
    build_compiled,
    other_pythons,
)

DESTINATION = ROOT / "dist"


def main() -> int:
    """Returns 1 if a Python can't run the wheel."""
    for old in DESTINATION.glob("sluice_governance-*"):
        old.unlink()
    wheel, sdist = (build(target, DESTINATION) for target in ("wheel", "sdist"))
    print(f"{wheel.relative_to(ROOT)}\n{sdist.relative_to(ROOT)}", flush=True)
    failed = False
    this = (".".join(map(str, sys.version_info[:2])), sys.executable)
    for version, program in (this, *other_pythons()):
        failed |= not _told(f"Python {version}, pure", _try(program, wheel))
        if lacking := missing():
            print(f"Python {version}, compiled: skipped, since {lacking}", flush=True)
            continue
        built = _compiled(program)
        failure = built if isinstance(built, str) else _try(program, built)
        failed |= not _told(f"Python {version}, compiled", failure)
    return int(failed)


def _told(what: str, failure: str | None) -> bool:
    print(f"{what}: {failure or 'installed, started, decided'}", flush=True)
    return failure is None


def _compiled(program: str) -> Path | str:
    """The compiled wheel of a Python, or why it has none."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if failure := _environment(folder, program, "compile"):
            return failure
        try:
            built = build_compiled(folder / "built", str(folder / "venv/bin/python"))
        except subprocess.CalledProcessError as error:
            return str(error.stderr.decode())
        return Path(shutil.copy(built, DESTINATION))


def _environment(folder: Path, program: str, extra: str, wheel: Path | None = None) -> str | None:
    """Make `folder/venv` with the locked versions for an extra, and the wheel. Returns what failed,
    if anything did."""
    python = folder / "venv" / "bin" / "python"
    locked = folder / "locked.txt"
    locked.write_text(part(LOCK.read_text(encoding="utf-8"), [extra]), encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
    commands = [
        [program, "-m", "venv", str(folder / "venv")],
        [*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(locked)],
    ]
    if wheel is not None:
        commands.append([*pip, str(wheel)])
    # What the wheel asks for is what the lock gave it.
    commands.append([str(python), "-m", "pip", "check"])
    for command in commands:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            return f"{' '.join(command)}: {answer.stdout}{answer.stderr}"
    return None


def _try(program: str, wheel: Path) -> str | None:
    """Install and run the wheel. Returns what failed, if anything did."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if failure := _environment(folder, program, "demo", wheel):
            return failure
        sluice = [str(folder / "venv/bin/sluice")]
        with up(folder / "data", program=sluice, cwd=folder, **OUTSIDE) as started:
            started.until_printed("Paste into another terminal")
            allowed = paste(started.command("ALLOW: "), folder, **OUTSIDE)
            denied = paste(started.command("DENY: "), folder, **OUTSIDE)
            code = started.interrupt()
        if "returned within 30 days" not in allowed.stdout or denied.returncode == 0 or code:
            return f"{allowed.stderr}{denied.stdout}, exit code {code}"
    return None


if __name__ == "__main__":
    sys.exit(main())
