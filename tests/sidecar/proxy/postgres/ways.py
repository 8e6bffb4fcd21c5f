"""Reads the corpus: ways in which an agent may try to read `secret.payroll`.

`corpus/*.yaml` has a file for each family. A way is a text, a list of texts of one session, or a
mapping with the members of `Way`; what stands beside `ways` holds for all of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

CORPUS = Path(__file__).parent / "corpus"
LOOKS = ("read", "names", "parse", "bind", "execute", "open")
Look = Literal["read", "names", "parse", "bind", "execute", "open"]
# Texts that are too long to be written down.
_LONG = {
    "{two hundred}": "'x' || " * 200,
    "{fifty open}": "SELECT * FROM (" * 50,
    "{fifty close}": ") s" * 50,
    "{sixty joins}": " CROSS JOIN ".join(f"(SELECT 1) j{n}" for n in range(60)),
    "{long}": "x" * 200_000,
    "{fifty selects}": "SELECT 1;" * 50,
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read the payroll."""

    family: str
    name: str
    sql: tuple[str, ...]
    """The texts, in order. `{guess}` is replaced, `$PORT` is the server's port."""
    look: Look
    """The last point at which a sidecar must deny it that allows everything but `secret.*`, and
    each function of `api` and `public`: when the text is read, when its names are resolved, or at
    the look after Parse, Bind or Execute. `open` isn't denied: the README tells it."""
    shows: str = "value"
    """What the server shows: a `value` or the name of a `column` of the payroll; a `bit`, by which
    a true guess differs from a false one; a bit by `time`; else a regular expression."""
    guess: tuple[str, ...] = ()
    """A true and a false guess."""
    leaks: bool = True
    """Whether the server shows it to the agent's login. If not, the way is here for what a sidecar
    may make of it."""
    why: str = ""
    """What a reader may wonder about."""
    setup: str = ""
    """What the superuser runs once, before."""
    after: str = ""
    """What the superuser runs after each try, so that the next one finds the same."""
    needs: frozenset[str] = frozenset()
    """Extensions, or `xml`."""
    since: int = 15
    until: int = 99
    """The first and the last major version on which it works."""
    transaction: Literal["both", "never", "only"] = "both"
    protocol: Literal["both", "simple", "extended"] = "both"
    play: str = ""
    """A function of `plays.py` that sends the texts."""
    values: tuple[str, ...] = ()
    """Parameters of the last text."""
    startup: dict[str, str] = field(default_factory=dict)
    """Parameters of the startup message."""

    def texts(self, guess: str = "", port: int = 0) -> list[str]:
        """Return the texts that are sent."""
        return [
            filled(each).replace("{guess}", guess).replace("$PORT", str(port)) for each in self.sql
        ]

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


def filled(text: str) -> str:
    """Return a text with what is too long to be written down."""
    for word, long in _LONG.items():
        text = text.replace(word, long)
    return text


def load() -> list[Way]:
    """Return all ways, in the files' order. Raises `ValueError` if a name stands twice in a file,
    or a look is unknown."""
    return [way for path in sorted(CORPUS.glob("*.yaml")) for way in _of_file(path)]


def _of_file(path: Path) -> list[Way]:
    text = path.read_text("utf-8")
    content = yaml.safe_load(text)
    ways = content.pop("ways")
    written = sum(line.startswith("  ") and line[2] not in " #" for line in text.splitlines())
    if written != len(ways):
        raise ValueError(f"{path.name} has {written} ways under {len(ways)} names")
    return [
        way for name, given in ways.items() for way in _ways(path.stem, str(name), content, given)
    ]


def _ways(family: str, name: str, shared: dict[str, Any], given: Any) -> list[Way]:
    members = shared | (given if isinstance(given, dict) else {"sql": given})
    each = members.pop("each", [None])
    members["since"] = members.pop("from", 15)
    members["until"] = members.pop("to", 99)
    sql = members.pop("sql")
    texts = [sql] if isinstance(sql, str) else sql
    # Only a server that was built with libxml has these functions.
    xml = ["xml"] if any("xml" in text.lower() for text in texts) else []
    members["needs"] = frozenset([*members.get("needs", ()), *xml])
    for key in ("guess", "values"):
        members[key] = tuple(map(str, members.get(key, ())))
    if members["look"] not in LOOKS:
        raise ValueError(f"{family}: {name}: no look `{members['look']}`")
    if members.get("shows", "") not in ("bit", "time"):
        members["guess"] = ()
    return [
        Way(
            family,
            name if one is None else f"{name}, {one}",
            tuple(text.replace("{each}", str(one)) for text in texts),
            **members,
        )
        for one in each
    ]
