"""The tree of a settings file, or of its text, and positions in it. Knows no setting."""

import shlex
from contextlib import suppress
from pathlib import Path

from policies.definitions.definition import DefinitionFaults, Node
from policies.definitions.load import parse_tree, read_text


def file_tree(path: Path, faults: DefinitionFaults) -> Node | None:
    """The tree of the file at `path`; None after a complaint."""
    with suppress(OSError):  # `read_text` reports why the path can't be examined
        if not path.exists():
            example = f"`sluice sidecar --example > {shlex.quote(str(path))}`"
            faults.add(0, "", f"does not exist; {example} writes one to start with")
            return None
    try:
        text = read_text(path, faults)
        return None if text is None else parse_tree(text, faults)
    except DefinitionFaults.TooManyFaults:
        return None


def text_tree(text: str, faults: DefinitionFaults) -> Node | None:
    """The tree of an environment variable's text; None after a complaint."""
    if not text.strip():
        faults.add(0, "", "is not set in the environment, or empty")
        return None
    try:
        return parse_tree(text, faults)
    except DefinitionFaults.TooManyFaults:
        return None


def descend(node: Node, levels: list[str]) -> dict[str, Node] | None:
    """The mapping at `levels`, created if the file has none; None if another kind of value is
    there."""
    for level in levels:
        # Only items that the file has: a gap in the numbers would leave a source without most keys.
        if node.tag == "list" and level.isdigit() and int(level) < len(node.value):
            node = node.value[int(level)]
        elif node.tag == "map":
            members: dict[str, Node] = node.value
            if level not in members or members[level].tag == "null":
                members[level] = Node(0, "map", {})
            node = members[level]
        else:
            return None
    found: dict[str, Node] | None = node.value if node.tag == "map" else None
    return found


def full_name(levels: list[str]) -> str:
    name = ""
    for level in levels:
        name += f"[{level}]" if level.isdigit() and name else f"{'.' if name else ''}{level}"
    return name
