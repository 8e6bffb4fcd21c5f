"""`make package`: builds the wheel and the sdist into `dist`, and tries the wheel on each supported
Python that is found. It installs the locked versions into an empty environment, starts `sluice up`,
and runs the commands that this prints. Needs an index, unlike the tests."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.install import LOCK
from deploy.lock import part
from tests.deploy.launcher import paste, up
from tests.deploy.package.distribution import OUTSIDE, ROOT, build, other_pythons

DESTINATION = ROOT / "dist"


def main() -> int:
    """Returns 1 if a Python can't run the wheel."""
    for old in DESTINATION.glob("sluice-*"):
        old.unlink()
    wheel, sdist = (build(target, DESTINATION) for target in ("wheel", "sdist"))
    print(f"{wheel.relative_to(ROOT)}\n{sdist.relative_to(ROOT)}", flush=True)
    failed = False
    this = (".".join(map(str, sys.version_info[:2])), sys.executable)
    for version, program in (this, *other_pythons()):
        with tempfile.TemporaryDirectory() as scratch:
            failure = _try(Path(scratch), program, wheel)
        print(f"Python {version}: {failure or 'installed, started, decided'}", flush=True)
        failed |= failure is not None
    return int(failed)


def _try(folder: Path, program: str, wheel: Path) -> str | None:
    """Install and run the wheel. Returns what failed, if anything did."""
    python = folder / "venv" / "bin" / "python"
    locked = folder / "locked.txt"
    locked.write_text(part(LOCK.read_text(encoding="utf-8"), ["demo"]), encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
    for command in (
        [program, "-m", "venv", str(folder / "venv")],
        [*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(locked)],
        [*pip, str(wheel)],
        # What the wheel asks for is what the lock gave it.
        [str(python), "-m", "pip", "check"],
    ):
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            return f"{' '.join(command)}: {answer.stdout}{answer.stderr}"
    sluice = [str(python.parent / "sluice")]
    with up(folder / "data", program=sluice, cwd=folder, **OUTSIDE) as started:
        started.until("Paste into another terminal")
        allowed = paste(started.command("ALLOW: "), folder, **OUTSIDE)
        denied = paste(started.command("DENY: "), folder, **OUTSIDE)
        code = started.interrupt()
    if "returned within 30 days" not in allowed.stdout or denied.returncode == 0 or code:
        return f"{allowed.stderr}{denied.stdout}, exit code {code}"
    return None


if __name__ == "__main__":
    sys.exit(main())
