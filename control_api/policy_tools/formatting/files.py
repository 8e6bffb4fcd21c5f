"""The text of a policy file before and after formatting, and its replacement.

A file is only replaced by one that the loader reads as the same values and that has the same
comments.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from control_api.policy_tools.formatting.comments import attach, comments
from control_api.policy_tools.formatting.layout import Schema, render
from control_api.policy_tools.formatting.source import Collection, parse
from policies.definitions.definition import DefinitionFaults, LoadError, Node
from policies.definitions.load import parse_tree, read_text


class Unformattable(Exception):
    """a file that can't be laid out without a change of its meaning; it stays as it is"""


def read(path: Path) -> str:
    """The text of a file, without a byte order mark. Raises `LoadError`."""
    faults = DefinitionFaults(str(path))
    text = read_text(path, faults)
    if text is None:
        raise LoadError(faults.found)
    return text


def formatted(text: str, schema: Schema, file: str) -> str:
    """The text of a file, laid out. Raises `LoadError` for what the loader can't read, and
    `Unformattable`."""
    before = _values(text, file)
    foreign = set(before) - set(schema["properties"]) if isinstance(before, dict) else {"it"}
    if foreign:
        raise Unformattable(f"{file}: is not a file of the kind `{schema['title']}`")
    tree = parse(text)
    kept = _comments(text, tree)
    attach(text, tree)
    end = "\r\n" if "\r\n" in text else "\n"
    after = "".join(line + end for line in render(tree, schema))
    if _values(after, file) != before or _comments(after, parse(after)) != kept:
        raise Unformattable(f"{file}: can't be laid out without a change of its meaning")
    return after


def _comments(text: str, tree: Collection) -> list[str]:
    return sorted(each.text for each in comments(text, tree) if each.text)


def _values(text: str, file: str) -> Any:
    faults = DefinitionFaults(file)
    try:
        tree = parse_tree(text, faults)
    except DefinitionFaults.TooManyFaults:
        tree = None
    if tree is None or faults.found:
        raise LoadError(faults.found)
    return _without_lines(tree)


def _without_lines(node: Node) -> Any:
    if node.tag == "map":
        return {key: _without_lines(each) for key, each in node.value.items()}
    if node.tag == "list":
        return [_without_lines(each) for each in node.value]
    return (node.tag, None if node.tag == "null" else node.value)


def replace(path: Path, text: str) -> None:
    """Put `text` in the place of a file, at once: a reader sees the old one or the new one. Links
    stay links, and the mode stays."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o7777
    # Hidden, so that a service that watches the folder ignores it.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    made = Path(name)
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        made.chmod(mode)
        made.replace(target)
    except BaseException:
        made.unlink()
        raise
