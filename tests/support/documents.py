"""The commands in the documentation: finds their blocks, and runs one as a reader would paste it.

A block begins with a comment, its title.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture.tree import ROOT, files

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELL = {"sh", "bash", "shell", "console"}


class Block(NamedTuple):
    """A fenced block of a document: its language, and its lines."""

    page: str
    language: str
    text: str

    @property
    def title(self) -> str:
        """The text of the first comment, up to a colon; empty without one."""
        found = re.match(r"# ([^\n:]+)", self.text)
        return "" if found is None else found[1]


def blocks(page: str) -> Iterator[Block]:
    """Yield all fenced blocks of a document, given by its path in the project."""
    for _, language, text in _FENCE.findall((ROOT / page).read_text("utf-8")):
        yield Block(page, language, text)


def pages() -> list[str]:
    """Return every document of the project."""
    return sorted(str(each.relative_to(ROOT)) for each in files() if each.suffix == ".md")


def commands(page: str, title: str) -> str:
    """Return the commands of one block."""
    (found,) = (
        each.text for each in blocks(page) if each.language in SHELL and each.title == title
    )
    return found


def paste(script: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the commands in `folder`; the first that fails ends them."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def put(folder: Path, name: str, script: str) -> None:
    """Write a program that a test's commands find first."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
