"""Reads one mapping of the settings file, key by key, and collects everything that is wrong.

Knows types of values (text, path, address, number, choice), how a text must be written, and JSON
scalars, since YAML's own scalars have more spellings. Knows no particular setting.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from policies.definitions.definition import Node, shown
from policies.ground.addresses import ListenAddress, RedisUrl
from policies.ground.canonical import identifier_fault
from sidecar.settings.authzen import Scalar
from sidecar.settings.model import Switch


def json_scalars(
    node: Node | None, text_tag: str
) -> tuple[dict[str, Scalar], list[tuple[int, str, str]]]:
    """Return the scalars in a mapping, and its faults: for each a line, the place below the mapping
    (such as `.name`), and the fault. `text_tag` marks texts, as `str` does."""
    if node is None:
        return {}, []
    if node.tag != "map":
        fault = "must be a mapping of names to texts, numbers, `true` or `false`"
        return {}, [(node.line, "", fault)]
    found: dict[str, Scalar] = {}
    faults = []
    for name, each in node.value.items():
        try:
            found[name] = each.value if each.tag == text_tag else _scalar(each)
        except ValueError:
            value = shown(each.value) if isinstance(each.value, str) else f"a {each.tag}"
            fault = f"{value} is not a text, a number, `true`, `false` or `null`"
            faults.append((each.line, f".{name}", fault))
    return found, faults


def _scalar(node: Node) -> Scalar:
    """Return the scalar in `node`; `ValueError` if it is anything else."""
    if node.tag == "str":
        return str(node.value)
    if node.tag == "null":
        return None
    if node.tag not in ("int", "float", "bool"):
        raise ValueError(node.tag)
    # YAML 1.1 also takes `0x10` and `1:30` for numbers, and `no` for a truth value.
    value: int | float | bool = json.loads(node.value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(node.value)
    return value


class Spelling(NamedTuple):
    """A pattern that a text must match from its start (with `\\Z` at the end, the whole text), and
    the complaint about a text that doesn't."""

    pattern: re.Pattern[str]
    wrong: str


def address_fault(text: str, schemes: tuple[str, ...]) -> str | None:
    """Return the fault of an address that must have one of `schemes`; None if it has none."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return f"is not an address: {error}"
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        return f"{shown(text)} is not " + " or ".join(f"{each}://host:port" for each in schemes)
    if parts.username is not None or parts.query or parts.fragment or not text.isascii():
        # The text is not shown: it may contain a password.
        return "must be only scheme, host, port and path; remove user, query and fragment"
    return None


FROM_ENVIRONMENT = "environment"
"""The tag of a node from the environment, whose text may be any type of scalar."""

DIGITS = 15
"""The most digits of a whole number."""
_INTEGER = re.compile(rf"[0-9]{{1,{DIGITS}}}\Z")
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?\Z")

Complain = Callable[[int, str, str], None]
"""Takes a line (0 if unknown), a key's full name, and the complaint."""

_Choice = TypeVar("_Choice", bound=str)


class Section:
    """A mapping of the file, empty if the file has none. `name` is the prefix of its keys."""

    def __init__(self, node: Node | None, name: str, complain: Complain) -> None:
        self.given = node is not None
        self._line = node.line if node is not None else 0
        self._name = name
        self._complain_at = complain
        self._members: dict[str, Node] = {}
        self._read: list[str] = []
        self._complained: set[str] = set()
        if node is not None and node.tag == "map":
            self._members = node.value
        elif node is not None and node.tag != "null":
            complain(node.line, name, "must be a mapping of keys to values")

    def complain(self, key: str, fault: str) -> None:
        """Report what is wrong with the value of `key`."""
        self._complained.add(key)
        node = self._members.get(key)
        self._complain_at(self._line if node is None else node.line, self._full(key), fault)

    def complained(self, key: str) -> bool:
        """Return whether a fault of `key` has been reported."""
        return key in self._complained

    def has(self, key: str) -> bool:
        """Return whether the file sets `key`."""
        return self._get(key) is not None

    def text(
        self, key: str, default: str | None = None, spelling: Spelling | None = None
    ) -> str | None:
        """Read a string. A text that YAML reads as a number or truth value must be quoted."""
        node = self._get(key)
        if node is None:
            return default
        if node.tag not in ("str", FROM_ENVIRONMENT):
            # YAML reads `8710` as a number and `no` as false.
            self.complain(key, f"must be a string; put {shown(str(node.value))} in quotes")
            return default
        text: str = node.value
        if spelling is not None and not spelling.pattern.match(text):
            self.complain(key, f"{shown(text)} {spelling.wrong}")
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of strings, or one string with commas between the items."""
        node = self._get(key)
        if node is None:
            return ()
        if node.tag != "list":
            return tuple(each.strip() for each in (self.text(key) or "").split(",") if each.strip())
        items = [item.value for item in node.value if item.tag == "str"]
        if len(items) < len(node.value):
            self.complain(key, "must be a list of strings; put numbers in quotes")
        return tuple(items)

    def required(
        self, key: str, spelling: Spelling | None = None, absent: str = "is required"
    ) -> str:
        """Like `text`, but complains if the key is absent or empty."""
        text = self.text(key)
        if not text and not self.complained(key):
            self.complain(key, absent)
        elif text and spelling is not None and not spelling.pattern.match(text):
            self.complain(key, f"{shown(text)} {spelling.wrong}")
        return text or ""

    def identifier(self, key: str, *, required: bool = False) -> str | None:
        """Read a string that is valid as an identifier in a record."""
        text = self.text(key)
        fault = None if text is None else identifier_fault(text)
        if text is None and required and not self.complained(key):
            fault = "is required"
        if fault:
            self.complain(key, fault)
        return text

    def choice(
        self, key: str, allowed: tuple[_Choice, ...], default: _Choice | None = None
    ) -> _Choice:
        """Read one of `allowed`. Without a default, the key is required. After a complaint, returns
        the default or the last of `allowed`."""
        text = self.required(key) if default is None else self.text(key, default)
        for each in allowed:
            if each == text:
                return each
        if not self.complained(key):
            self.complain(key, f"{shown(text or '')} is not one of {', '.join(allowed)}")
        return default or allowed[-1]

    def switch(self, key: str, default: Switch) -> Switch:
        """Read `on` or `off`. YAML reads both as truth values, so truth values are accepted too."""
        node = self._get(key)
        if node is None:
            return default
        if node.value in ("off", "false"):
            return "off"
        if node.value not in ("on", "true"):
            self.complain(key, f"{_shown(node)} is not one of on, off")
            return default
        return "on"

    def optional_choice(self, key: str, allowed: tuple[_Choice, ...]) -> _Choice | None:
        """Read one of `allowed`; None if the key is absent."""
        return self.choice(key, allowed) if self.has(key) else None

    def scalars(self, key: str) -> dict[str, Scalar]:
        """Read JSON scalars under names that the operator chooses."""
        found, faults = json_scalars(self._get(key), FROM_ENVIRONMENT)
        for line, name, fault in faults:
            self._complain_at(line, self._full(key) + name, fault)
        return found

    def integer(self, key: str, default: int, least: int) -> int:
        text = self._number(key, ("int", FROM_ENVIRONMENT), _INTEGER)
        value = default if text is None else int(text)
        if value < least:
            self.complain(key, f"`{value}` is below the minimum of {least}")
        return value

    def seconds(self, key: str, default: float, least: float, most: float) -> float:
        text = self._number(key, ("int", "float", FROM_ENVIRONMENT), _DECIMAL)
        value = default if text is None else float(text)
        if not least <= value <= most:
            self.complain(key, f"`{value:g}` is not between {least:g} and {most:g} seconds")
        return value

    def share(self, key: str, default: float) -> float:
        """Read a number from 0 to 1."""
        text = self._number(key, ("int", "float", FROM_ENVIRONMENT), _DECIMAL)
        value = default if text is None else float(text)
        if not 0 <= value <= 1:
            self.complain(key, f"`{value:g}` is not between 0 and 1")
        return value

    def path(self, key: str, base: Path, default: str | None = None) -> Path:
        """Read a path, relative to `base`. Required if `default` is None."""
        text = self.required(key) if default is None else self.text(key, default)
        # `base / "/etc/x"` is `/etc/x`: an absolute path stays as it is.
        return base / (text or "")

    def listen(self, key: str, default: str | None = None) -> ListenAddress | None:
        text = self.text(key, default)
        try:
            return None if text is None else ListenAddress.parse(text)
        except ValueError as error:
            self.complain(key, str(error))
            return None

    def address(self, key: str, schemes: tuple[str, ...] = ("http", "https")) -> str:
        """Read an address with one of `schemes`, without user, query, fragment or trailing `/`. The
        port may be missing."""
        text = self.required(key)
        if text:
            fault = address_fault(text, schemes)
            if fault:
                self.complain(key, fault)
        return text.rstrip("/")

    def redis(self, key: str, base: Path) -> RedisUrl | None:
        """Read a URL. Paths in its options are relative to `base`."""
        text = self.text(key)
        try:
            return RedisUrl.parse(text).with_files_in(base) if text else None
        except ValueError as error:  # its message does not contain the password
            self.complain(key, str(error))
            return None

    def section(self, key: str) -> "Section":
        return Section(self._get(key), self._full(key), self._complain_at)

    def sections(self, key: str) -> Iterator["Section"]:
        """Yield the mappings of a list."""
        node = self._get(key)
        if node is not None and node.tag != "list":
            self.complain(key, "must be a list")
            return
        for index, item in enumerate([] if node is None else node.value):
            section = Section(item, f"{self._full(key)}[{index}]", self._complain_at)
            if item.tag == "map":  # `Section` has complained of anything else
                yield section

    def named_sections(self, key: str) -> Iterator[tuple[str, "Section"]]:
        """Yield the mappings in a mapping whose keys the operator chooses."""
        section = self.section(key)
        for name in section.own_keys():
            yield name, section.section(name)

    def own_keys(self) -> tuple[str, ...]:
        """Return the keys of a mapping whose keys the operator chooses."""
        return tuple(self._members)

    def close(self) -> None:
        """Complain of every unknown key: a misspelt one must not silently leave a default in
        effect."""
        for key, node in self._members.items():
            if key not in self._read:
                near = get_close_matches(key, self._read, n=1)
                hint = f"did you mean `{near[0]}`?" if near else "`--help` lists the keys"
                self._complain_at(node.line, self._full(key), f"there is no such key; {hint}")

    def _get(self, key: str) -> Node | None:
        # `close` complains of every key that was not read, so reading one is what makes it known.
        self._read.append(key)
        node = self._members.get(key)
        return None if node is None or node.tag == "null" else node

    def _number(self, key: str, tags: tuple[str, ...], form: re.Pattern[str]) -> str | None:
        node = self._get(key)
        if node is None:
            return None
        # YAML 1.1 accepts `1_000`, `0x10`, `010` (8) and `1:30` (90) as numbers, which surprises
        # most readers. The forms accepted here have one reading.
        if node.tag not in tags or not form.match(node.value):
            self.complain(key, f"{_shown(node)} is not a plain number such as 30")
            return None
        text: str = node.value
        return text

    def _full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _shown(node: Node) -> str:
    value: Any = node.value
    return shown(value) if isinstance(value, str) else f"a {node.tag}"
