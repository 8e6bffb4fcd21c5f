"""Parses a program's settings from its environment, one at a time, and collects every complaint.
Knows the forms of values, not the list of settings."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from policies.ground.errors import worded

Value = TypeVar("Value")
PREFIX = "SLUICE_"
_SECRET_BYTES = 16_384  # a wrong path may name a device or a file of gigabytes
_SHARE = re.compile(r"(?:0(?:\.[0-9]{1,9})?|1(?:\.0{1,9})?)\Z")


class SettingsReader:
    """Reads settings from environment variables, and collects complaints instead of raising. An
    empty value counts as absent. `secrets` names the settings whose value `SLUICE_<NAME>_FILE` may
    give as a file."""

    def __init__(self, environ: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        self.complaints: list[str] = []
        self._environ = {**environ, **self._from_files(environ, secrets)}

    def _from_files(self, environ: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
        """Return the values of those secrets that the environment gives as files."""
        found = {}
        for name in secrets:
            if not (path := environ.get(f"{PREFIX}{name}_FILE")):
                continue
            if environ.get(PREFIX + name):
                self.complain(f"{name}_FILE", f"is set, and {PREFIX}{name} too: leave one out")
                continue
            try:
                with Path(path).open("rb") as file:
                    # An editor ends the line, which is not part of the secret.
                    found[PREFIX + name] = file.read(_SECRET_BYTES).decode("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = worded(error) if isinstance(error, OSError) else "it is not text"
                self.complain(f"{name}_FILE", f"`{path}` can't be read: {why}")
        return found

    def text(self, name: str, default: str) -> str:
        return self._environ.get(PREFIX + name) or default

    def parsed(self, name: str, parse: Callable[[str], Value]) -> Value | None:
        """Return a setting's value, parsed by `parse`; None if it is not set, or not valid. If
        `parse` raises `ValueError`, its message becomes a complaint."""
        text = self.text(name, "")
        try:
            return parse(text) if text else None
        except ValueError as error:
            # Not quoted, since a URL may hold a password; `parse` quotes what is harmless.
            self.complain(name, str(error))
            return None

    def directory(self, name: str) -> Path | None:
        text = self.text(name, "")
        if text and not Path(text).is_dir():
            self.complain(name, f"`{text}` is not a directory")
        return Path(text) if text else None

    def flag(self, name: str, default: str = "0") -> bool:
        return self.choice(name, ("0", "1"), default) == "1"

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value and value not in allowed:
            self.complain(name, f"`{value}` is not one of {', '.join(allowed)}")
        return value

    def number(self, name: str, default: int, least: int, most: int, unit: str) -> int:
        text = self.text(name, str(default))
        # `isdigit` alone also accepts digits of other scripts. The slice bounds the cost of `int`.
        if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= most:
            self.complain(name, f"`{text}` is not a number of {unit} from {least} to {most}")
            return default
        return int(text)

    def share(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        if not _SHARE.match(text):
            self.complain(name, f"`{text}` is not a number from 0 to 1, such as 0.01")
            return default
        return float(text)

    def refuse_unknown(self, known: Collection[str], ours: Callable[[str], bool]) -> None:
        """Complain of each variable that is not in `known` although `ours` says that it is meant
        for this program: a misspelt name would silently leave its default in force."""
        for name in sorted(self._environ):
            if name not in known and ours(name):
                near = get_close_matches(name, known, n=1)
                hint = f": did you mean {near[0]}?" if near else ""
                self.complaints.append(f"{name}: there is no such setting{hint}")

    def complain(self, name: str, fault: str) -> None:
        self.complaints.append(f"{PREFIX}{name}: {fault}")
