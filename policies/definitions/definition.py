"""A policy as a file defines it, the values of a file with their lines, and the faults found in
either.

Knows neither YAML nor files: `policies.definitions.load` parses a file into `Node`s, and
`policies.definitions.forms` checks them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

_MAX_FAULTS = 100


class DefinitionFault(NamedTuple):
    """Something wrong in a policy file, and where it is. `file` is relative to the policy
    directory; `line` counts from 1, and 0 means the whole file; `key` is empty if the fault
    concerns no key."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        file = printable(self.file)
        place = f"{file}:{self.line}" if self.line else file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class LoadError(Exception):
    """a tenant's policy files can't be used; `faults` lists every reason"""

    def __init__(self, faults: list[DefinitionFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Definition:
    """A policy as a file defines it, with its place there. `body` holds every field of a policy; an
    absent list is empty and an absent scalar is None. The store adds the id and the version."""

    file: str
    line: int
    body: dict[str, Any]


FROM_ENVIRONMENT = "environment"
"""The tag of a `Node` whose value comes from an environment variable. Its text may be read as a
scalar of any kind."""


class Node(NamedTuple):
    """A value in a file. `tag` is `map`, `list`, or the scalar's kind (`str`, `int`, …). `value` is
    a dict of members by key, a list of items, or the scalar's text."""

    line: int
    tag: str
    value: Any

    @property
    def is_text(self) -> bool:
        return self.tag in ("str", FROM_ENVIRONMENT)


def in_order(faults: Iterable[DefinitionFault]) -> list[DefinitionFault]:
    """Sort the faults by file and line; faults on one line keep their order."""
    return sorted(faults, key=lambda fault: fault[:2])


class DefinitionFaults:
    """Collects the faults of one file, at most a hundred: more are usually one mistake,
    repeated."""

    class TooManyFaults(Exception):
        """the file has so many faults that checking it stopped"""

    def __init__(self, file: str, base: Path = Path()) -> None:
        """Begin a list of faults for `file`. `base` is the folder to which paths in the file are
        relative."""
        self.file: Final = file
        self.base: Final = base
        self.found: list[DefinitionFault] = []

    def place(self, key: str, step: str | int) -> str:
        """Return the key under which a fault of a member or item is reported. `key` is that of the
        mapping or list; `step` is the member's key, or the item's index. The line tells where it
        is, so a member's own key is enough."""
        return label(step) if isinstance(step, str) else key

    def add(self, line: int, key: str, message: str) -> None:
        self.found.append(DefinitionFault(self.file, line, key, message))
        # A one-mebibyte file could otherwise produce more text than anyone reads or a log holds.
        if len(self.found) == _MAX_FAULTS:
            last = max(fault.line for fault in self.found)
            message = f"the file has more faults; only the first {_MAX_FAULTS} are listed"
            self.found.append(DefinitionFault(self.file, last, "", message))
            raise DefinitionFaults.TooManyFaults


def printable(text: str) -> str:
    """Return a text from a file, or the name of a file, escaped so that it is one line that a
    terminal only shows."""
    # A message is one line of a log: a line break in a name must not begin another. A terminal
    # would obey the escape sequences of a file's name, and a name that is not UTF-8 can't be
    # printed.
    return text if text.isprintable() else ascii(text)[1:-1]


def shown(text: str) -> str:
    """Return a text from a file, quoted for a message: in backticks, on one line, at most 64
    characters."""
    plain = printable(text)
    return f"`{plain[:64]}…`" if len(plain) > 64 else f"`{plain}`"


def label(key: str) -> str:
    """Return a key as a `DefinitionFault` names it; empty if it is too long or not printable."""
    return key if key.isprintable() and len(key) <= 64 else ""


MAX_LISTED = 12


def unknown_key(
    line: int, key: str, known: tuple[str, ...], faults: DefinitionFaults, place: str
) -> None:
    # Cut the key: the comparison takes quadratic time, and a key may be as long as the file.
    near = get_close_matches(key[:64], known, n=1)
    # Only settings of programs have more keys than a line can list.
    listed = f"expected {', '.join(known)}" if len(known) <= MAX_LISTED else "`--help` lists them"
    hint = f"did you mean `{near[0]}`?" if near else listed
    faults.add(line, place, f"unknown key; {hint}")


def surrogate_fault(text: str) -> str | None:
    """Return a fault if the text has a lone surrogate, which UTF-8 can't encode; None otherwise."""
    if text.isprintable() or text.isascii():
        return None  # a surrogate is neither
    lone = any("\ud800" <= character <= "\udfff" for character in text)
    return "is not Unicode text" if lone else None
