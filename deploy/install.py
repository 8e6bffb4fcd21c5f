"""Makes `.venv` and installs into it what `requirements.lock` pins, showing how far it is.

`python -m deploy.install run|test [--this-python]`, called by the Makefile; with `--this-python` a
`.venv` of another Python is made anew. `python -m deploy.install made-by-this` only prints whether
`.venv` is of this Python, `yes` or `no`. Uses the standard library alone, since nothing else is
there yet. Installs by hash, wheels only and without resolving: the lock is
complete, so nothing that it does not name can come in, and nothing of a stranger's is executed on
the way. Knows nothing of what the distributions are for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
FETCHED = VENV / "fetched"
TEST_PART = "# ---- what `make test` installs besides"

OLDEST = (3, 11)
AT_ONCE = 4  # pip is bound by its own reading of the index pages: four of them are thrice as fast
LAST_LINES = 25
# What tells one Python from another: two builds of the same version have different prefixes.
BUILD = "import sys; print(sys.version, sys.base_prefix)"


class CannotInstall(Exception):
    """What stands in the way, in words for whoever typed `make`."""


def main(part: str, *, this_python: bool = False) -> int:
    """0 when everything is installed; otherwise 1, after telling what failed."""
    try:
        if sys.version_info < OLDEST:
            raise CannotInstall(f"Python 3.11 or later is needed, this is {sys.version.split()[0]}")
        _make_venv(this_python=this_python)
        text = LOCK.read_text(encoding="utf-8")
        there = _installed()
        chosen = pins(text.partition(TEST_PART)[0] if part == "run" else text)
        wanted = [pin for pin in chosen if pin.split()[0] not in there]
        _fetch(wanted)
        _unpack(wanted)
    except CannotInstall as problem:
        print(problem, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(FETCHED, ignore_errors=True)
    return 0


def pins(text: str) -> list[str]:
    """The requirements in a lock's text, a block each: the version and its hashes."""
    return re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", text, re.MULTILINE)


def made_by_this() -> bool:
    """Whether `.venv` runs the same Python as this process."""
    return PYTHON.exists() and _build(str(PYTHON)) == _build(sys.executable)


def _build(python: str) -> str:
    answer = subprocess.run([python, "-c", BUILD], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def _make_venv(*, this_python: bool) -> None:
    if PYTHON.exists() and _runs(PYTHON):
        if not this_python or made_by_this():
            return
        print(f".venv runs Python {_build(str(PYTHON)).split()[0]}, not the one asked for")
    print(f"making .venv with Python {sys.version.split()[0]}", flush=True)
    try:
        venv.create(VENV, clear=True, symlinks=True, with_pip=True)
    except (subprocess.CalledProcessError, ImportError) as error:
        raise CannotInstall(
            f"`{sys.executable}` can't make a virtual environment: {error}\n"
            "its `ensurepip` may be missing: install it (Debian: `python3-venv`), "
            "or name another Python: make PYTHON=/path/to/python3.12 …"
        ) from error


def _runs(python: Path) -> bool:
    asked = [str(python), "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _installed() -> set[str]:
    """What is there already, as `name==version` the way the lock writes it."""
    asked = [str(PYTHON), "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    lines = (line.partition("==") for line in answer.stdout.split())
    return {f"{re.sub('[-_.]+', '-', name).lower()}=={version}" for name, _, version in lines}


def _fetch(wanted: list[str]) -> None:
    """All wheels into one folder, by several pips side by side."""
    shutil.rmtree(FETCHED, ignore_errors=True)
    FETCHED.mkdir()
    running = []
    for share in range(min(AT_ONCE, len(wanted))):
        pinned, log = FETCHED / f"{share}.txt", FETCHED / f"{share}.log"
        pinned.write_text("".join(wanted[share::AT_ONCE]), encoding="utf-8")
        command = ["download", "--only-binary", ":all:", "--dest", str(FETCHED)]
        running.append((_pip(log, *command, "--require-hashes", "-r", str(pinned)), log))
    while any(pip.poll() is None for pip, _ in running):
        time.sleep(0.2)
        found = sum(log.read_text(errors="replace").count("Collecting ") for _, log in running)
        _progress(f"fetching {found} of {len(wanted)}")
    _progress(f"fetched {len(wanted)} distributions", end="\n")
    for pip, log in running:
        _judge(pip, log)


def _unpack(wanted: list[str]) -> None:
    """Into `.venv`, by one pip; and the project itself, where it lies, so that an edit counts."""
    _progress(f"unpacking {len(wanted)} distributions")
    pinned, log = FETCHED / "all.txt", FETCHED / "unpack.log"
    pinned.write_text("".join(wanted), encoding="utf-8")
    # Bytecode is left to the first import: most of these files are never imported.
    local = ["install", "--no-compile", "--no-index", "--find-links", str(FETCHED)]
    if wanted:
        _judge(_pip(log, *local, "--require-hashes", "-r", str(pinned)), log)
    _judge(_pip(log, "install", "--no-index", "--no-build-isolation", "-e", str(ROOT)), log)
    _progress(f"unpacked {len(wanted)} distributions and Sluice itself", end="\n")


def _pip(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(PYTHON), "-m", "pip", arguments[0], "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", *arguments[1:]]
    # A user's own `PIP_USER=1` would send everything past the virtual environment.
    environment = os.environ | {"PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=ROOT
        )


def _judge(pip: subprocess.Popen[bytes], log: Path) -> None:
    if pip.wait():
        _progress("", end="")
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise CannotInstall("\n".join(["pip could not install; its last words:", *tail]))


def _progress(text: str, end: str = "") -> None:
    """One line that changes on a terminal; elsewhere only the lines that stay."""
    if sys.stdout.isatty():
        print(f"\r\x1b[2K{text}", end=end, flush=True)
    elif end:
        print(text, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "made-by-this":
        print("yes" if made_by_this() else "no")
        sys.exit(0)
    sys.exit(main(sys.argv[1], this_python="--this-python" in sys.argv[2:]))
