"""Writes `requirements.lock`: every distribution that the project is built, run and tested with.

    python -m deploy.lock               resolve the newest versions again, as `make lock` does
    python -m deploy.lock --mark        keep the versions; mark anew which extras need them
    python -m deploy.lock --extra NAME  print the part for an installation with these extras

The first two need `uv`; the last needs nothing but the file. `TEST_PART` divides the file: `make
run` installs the first part, `make test` both. The file contains hashes but no index address: the
machine's pip configuration says where to fetch from. Every Python gets the same versions, those
that the oldest one can run. `deploy.install` installs what the file lists.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.install import LOCK, OLDEST, ROOT, TEST_PART, pins

HEADER = """\
# Every distribution that Sluice is built, run and tested with, by version and hash, for
# CPython 3.11 and later. Made by `make lock`, installed by `make run` and `make test`. The comment
# below a distribution names the extras that need it; `base` is every installation.
"""
BUILD = (
    "hatchling>=1.27\n"  # the build backend, pinned too: otherwise a build would fetch any version
)
BASE = "base"
EXTRAS = (
    "aws", "compile", "demo", "grpc", "images", "milvus", "oidc", "otel", "postgres",
    "postgres-demo", "redis", "server", "sidecar", "zstd",
)  # fmt: skip
LATER = ("3.12", "3.13", "3.14")
# `-` reads `BUILD` from standard input, as more requirements beside the project's.
UV = [
    "uv", "pip", "compile", "pyproject.toml", "-", "--python-platform", "linux",
    "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate",
    "--no-header", "--no-build", "--quiet", "--upgrade",
]  # fmt: skip
_MARK = re.compile(r"^    # (.*)\n", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Print the part of the lock for the given extras, or write the file: with new marks only, or
    with all versions resolved again."""
    parser = argparse.ArgumentParser(prog="python -m deploy.lock")
    parser.add_argument(
        "--extra",
        action="append",
        choices=(BASE, *EXTRAS),
        help="print the distributions that an installation with this extra needs; may be repeated",
    )
    parser.add_argument("--mark", action="store_true", help="mark anew which extras need what")
    chosen = parser.parse_args(arguments)
    if chosen.extra:
        print(part(LOCK.read_text("utf-8"), chosen.extra), end="")
        return 0
    if chosen.mark:
        run, _, rest = LOCK.read_text("utf-8").partition(TEST_PART)
        _write(pins(run), pins(rest))
        return 0
    return _resolve()


def part(text: str, extras: list[str]) -> str:
    """Return those requirements of a lock's text that an installation with `extras` needs."""
    wanted = {BASE, *extras}
    return "".join(block for block in pins(text) if wanted & _marks(block))


def _marks(block: str) -> set[str]:
    found = _MARK.search(block)
    return set(found[1].split()) if found else set()


def _resolve() -> int:
    """Resolve the distributions that running needs, then those that testing needs, with the same
    versions. After a failure the old file stays. Returns the exit code."""
    oldest = ".".join(map(str, OLDEST))
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "constraints.txt")
        run = _compile(oldest, "--extra", "demo")
        constraints.write_text("".join(run), encoding="utf-8")
        everything = ("--extra", "demo", "--extra", "test", "--constraint", str(constraints))
        every = _compile(oldest, *everything)
        constraints.write_text("".join(every), encoding="utf-8")
        until: dict[str, str] = {}
        for later in LATER:
            needed = _compile(later, *everything)
            # A later Python may need less (the marker says so), but one lock can't give it more.
            if more := set(needed) - set(every):
                names = ", ".join(sorted(block.partition("==")[0] for block in more))
                sys.exit(f"Python {later} needs distributions that {oldest} does not: {names}")
            for block in set(every) - set(needed):
                until.setdefault(block, later)
    first = [_until(block, until) for block in run]
    rest = [_until(block, until) for block in every if block not in run]
    _write(first, rest)
    print(f"{LOCK.relative_to(ROOT)}: {len(run)} distributions to run, {len(rest)} more to test")
    return 0


def _until(block: str, until: dict[str, str]) -> str:
    """Return a requirement, with an environment marker if Pythons from some version on don't need
    it."""
    if block not in until:
        return block
    pin, rest = block.split(" ", 1)
    return f'{pin} ; python_version < "{until[block]}" {rest}'


def _write(run: list[str], rest: list[str]) -> None:
    """Write the lock file, with a comment below each distribution that says which extras need
    it."""
    needs: dict[str, list[str]] = {}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        # Versions alone: uv's constraints have no hashes.
        constraints.writelines(f"{block.split()[0]}\n" for block in (*run, *rest))
        constraints.flush()
        for extra in (BASE, *EXTRAS):
            chosen = [] if extra == BASE else ["--extra", extra]
            versions = ("--constraint", constraints.name)
            for block in _compile(".".join(map(str, OLDEST)), *chosen, *versions, more=""):
                needs.setdefault(block.split()[0], []).append(extra)

    def marked(block: str) -> str:
        extras = needs.get(block.split(maxsplit=1)[0])
        return _MARK.sub("", block) + (f"    # {' '.join(extras)}\n" if extras else "")

    first, second = ("".join(map(marked, blocks)) for blocks in (run, rest))
    LOCK.write_text("\n".join([HEADER + first, TEST_PART + "\n" + second]), "utf-8")


def _compile(python: str, *arguments: str, more: str = BUILD) -> list[str]:
    """Resolve the requirements for one version of Python with `uv`. Returns them as blocks of a
    version and its hashes."""
    command = [*UV, "--python-version", python, *arguments]
    answer = subprocess.run(
        command, cwd=ROOT, input=more, capture_output=True, text=True, check=False
    )
    if answer.returncode:
        sys.exit(answer.stderr)
    return pins(answer.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
