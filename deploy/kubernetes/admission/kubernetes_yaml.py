"""Reads and writes YAML with the types that Kubernetes gives to its values. Knows nothing of the
objects in it.

`kubectl` and the API server read YAML 1.1 by Go's rules, which differ from PyYAML's: `y` is a
boolean, `1e3` is a number, `2026-11-22` and `12:30` are texts. With PyYAML's own rules a manifest
would change its meaning on the way through `sluice inject`.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_MARKER = re.compile(r"^---(?=[ \t\r\n]|\Z)[ \t\r]*", re.MULTILINE)
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN = re.compile(r"\A[A-Za-z_/][A-Za-z0-9_./-]*\Z")
# The plain texts that some reader of YAML takes for a boolean, a null or a number.
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


class Unreadable(Exception):
    """the text is not valid YAML"""


# PyYAML's own parser, not libyaml's ten times as fast one: that one composes recursively in C, and
# a text with a hundred thousand brackets ends the process instead of raising an error.
class _Loader(yaml.SafeLoader):
    """A YAML loader with Go's types: without timestamps, sexagesimal numbers and the value key
    `=`."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping. Raises `Unreadable` for a duplicate key, which `kubectl` refuses too:
        two readers may use different ones of the two values."""
        assert isinstance(node, yaml.MappingNode)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    mark = key.start_mark
                    raise Unreadable(f"line {mark.line + 1}: key `{key.value}` is there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes every text which some YAML reader might take for a value of another
    type."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Return True, so that equal parts are written out each time: anchors make a manifest hard
        to read."""
        return True


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    rules = (
        ("bool", r"\A(?:y|Y|yes|Yes|YES|on|On|ON|true|True|TRUE)\Z", "yYoOtT"),
        ("bool", r"\A(?:n|N|no|No|NO|off|Off|OFF|false|False|FALSE)\Z", "nNoOfF"),
        ("int", r"\A[-+]?(?:0|[1-9][0-9_]*|0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+)\Z", "-+0123456789"),
        (
            "float",
            r"\A[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z",
            "-+.0123456789",
        ),
        ("float", r"\A(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z", "-+."),
        ("merge", r"\A<<\Z", "<"),
        ("null", r"\A(?:~|null|Null|NULL|)\Z", "~nN"),
    )
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {"": []}
    for tag, pattern, firsts in rules:
        compiled = re.compile(pattern)
        for first in firsts:
            table.setdefault(first, []).append((f"tag:yaml.org,2002:{tag}", compiled))
    table[""].append(("tag:yaml.org,2002:null", re.compile(r"\Z")))
    return table


def _bool(_loader: yaml.SafeLoader, node: yaml.ScalarNode) -> bool:
    return node.value[:2].lower() in ("y", "ye", "on", "tr")


def _int(_loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "")
    digits = text.lstrip("+-")
    # A leading zero is octal in YAML 1.1; Python wants it said.
    base = 8 if re.match(r"0[0-7]", digits) else 0
    return int(text, base)


def _float(_loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(re.sub(r"\.(?=inf|nan)", "", node.value.lower()))


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if "\n" in text:
        style = "|"
    elif _PLAIN.match(text) and text.lower() not in _WORDS:
        style = ""
    elif '"' in text and text.isprintable():
        style = "'"  # no escapes: JSON in an annotation stays readable
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Loader.yaml_implicit_resolvers = _resolvers()
_Loader.add_constructor("tag:yaml.org,2002:bool", _bool)
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Dumper.add_representer(str, _text)


def load(text: str) -> Any:
    """Parse `text`, which must hold one YAML document. Raises `Unreadable`."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # derived from the safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def dump(value: Any) -> str:
    """Write one YAML document as text. The keys keep their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


def split(text: str) -> list[str]:
    """Split `text` into its YAML documents, each with its comments and without the separator
    `---`."""
    # In YAML, these characters at the start of a line separate documents wherever they stand, also
    # in the middle of a text.
    pieces = _MARKER.split(text.removeprefix("\ufeff"))
    return [piece.lstrip("\n") for piece in pieces if piece.strip()]
