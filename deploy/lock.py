"""Writes `requirements.lock`: every distribution that the project is built, run and tested with.

`make lock` runs it, with `uv` on the PATH. `TEST_PART` divides the file: `make run` installs the
first part, `make test` both. The file contains hashes but no index address: the machine's pip
configuration says where to fetch from. Every Python gets the same versions, those that the oldest
one can run. Knows nothing of installing; `deploy.install` does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.install import LOCK, OLDEST, ROOT, TEST_PART, pins

HEADER = """\
# Every distribution that Sluice is built, run and tested with, by version and hash, for
# CPython 3.11 and later. Made by `make lock`, installed by `make run` and `make test`.
"""
BUILD = (
    "hatchling>=1.27\n"  # the build backend, pinned too: otherwise a build would fetch any version
)
LATER = ("3.12", "3.13", "3.14")
# `-` reads `BUILD` from standard input, as more requirements beside the project's.
UV = [
    "uv", "pip", "compile", "pyproject.toml", "-", "--python-platform", "linux",
    "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate",
    "--no-header", "--no-build", "--quiet", "--upgrade",
]  # fmt: skip


def main() -> int:
    """Resolve the run part, then the rest with the same versions. A failure keeps the old file."""
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
    first = [_marked(block, until) for block in run]
    rest = [_marked(block, until) for block in every if block not in run]
    LOCK.write_text("\n".join([HEADER + "".join(first), TEST_PART + "\n" + "".join(rest)]), "utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(run)} distributions to run, {len(rest)} more to test")
    return 0


def _marked(block: str, until: dict[str, str]) -> str:
    """The block, with a marker if later Pythons don't need it."""
    if block not in until:
        return block
    pin, rest = block.split(" ", 1)
    return f'{pin} ; python_version < "{until[block]}" {rest}'


def _compile(python: str, *arguments: str) -> list[str]:
    """The requirements for one Python, as blocks of a pin and its hashes."""
    command = [*UV, "--python-version", python, *arguments]
    answer = subprocess.run(
        command, cwd=ROOT, input=BUILD, capture_output=True, text=True, check=False
    )
    if answer.returncode:
        sys.exit(answer.stderr)
    return pins(answer.stdout)


if __name__ == "__main__":
    sys.exit(main())
