"""The recipes of `deploy/gateways`: their files, as users copy them.

`deploy/gateways/README.md` says what a user replaces: the ports, and the key. `copy` does that and
no more, unless a `Change` says so. A line that ends in `safety: <name>` is one without which
something goes wrong; the lines that are indented deeper below it belong to it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.architecture.tree import ROOT

FOLDER = ROOT / "deploy" / "gateways"
SIDECAR = "sidecar.yaml"
IN, DOOR, GRPC_DOOR, UPSTREAM = 8080, 8710, 8720, 9000
"""The ports that stand in the files."""
_SAFETY = re.compile(r"^(.*?)\s*(?:#|--) safety: ([a-z ]+)$")


def names() -> list[str]:
    return sorted(each.name for each in FOLDER.iterdir() if (each / SIDECAR).exists())


def files(name: str) -> list[Path]:
    """What users copy of a recipe, without its README and the sidecar's part."""
    return sorted(
        each for each in (FOLDER / name).iterdir() if each.name not in ("README.md", SIDECAR)
    )


def sidecar(name: str) -> dict[str, Any]:
    """What a recipe adds to a sidecar's settings."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / name / SIDECAR).read_text("utf-8"))
    return found


def safety(name: str) -> list[tuple[int, str]]:
    """A recipe's safety lines: which one of them it is, from 0, and its name."""
    lines = (line for each in files(name) for line in each.read_text("utf-8").splitlines())
    marks = (_SAFETY.match(line) for line in lines)
    return list(enumerate(each[2] for each in marks if each is not None))


def _without(texts: Iterable[str], left_out: int) -> Iterator[str]:
    """The texts without one safety line, counted through all of them."""
    count = itertools.count()
    for text in texts:
        kept: list[str] = []
        inside: int | None = None
        for line in text.splitlines():
            indent = len(line) - len(line.lstrip())
            if inside is not None and (not line.strip() or indent > inside):
                continue
            inside = None
            if _SAFETY.match(line) and next(count) == left_out:
                inside = indent
                continue
            kept.append(line)
        yield "\n".join(kept) + "\n"


class Change(NamedTuple):
    """What a copy of a recipe has otherwise than its files."""

    left_out: int | None = None
    """The safety line that it goes without."""
    door: str | None = None
    """The name of its HTTP door."""
    changed: tuple[str, str] | None = None
    """Text that stands in the files once, and what is there instead."""


UNCHANGED = Change()


def twin_door(name: str, alias: str) -> Change:
    """The recipe with its HTTP door for the source `alias` of `protected.TWINS`."""
    (door,) = sidecar(name)["doors"]
    return Change(door=f"{door['name']}-{alias}")


def copy(name: str, target: Path, ports: Mapping[int, int], change: Change) -> None:
    """Copy a recipe's files with other ports."""
    target.mkdir(parents=True, exist_ok=True)
    texts: Iterable[str] = [each.read_text("utf-8") for each in files(name)]
    if change.left_out is not None:
        texts = _without(texts, change.left_out)
    if change.changed is not None:
        texts, (old, new) = list(texts), change.changed
        assert sum(each.count(old) for each in texts) == 1, (name, old)
        texts = [each.replace(old, new) for each in texts]
    for each, text in zip(files(name), texts, strict=True):
        (target / each.name).write_text(_replaced(text, ports, change.door), "utf-8")


def _replaced(text: str, ports: Mapping[int, int], door: str | None) -> str:
    for port, real in ports.items():
        text = re.sub(rf"\b{port}\b", str(real), text)
    return text if door is None else re.sub(r"(/v1/check/)[a-z-]+", rf"\g<1>{door}", text)
