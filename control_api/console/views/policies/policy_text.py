"""Writes policies as text for people, and reads them back, with every fault at its line."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from control_api.console.page import Form
from policies.definitions.definition import DefinitionFault, DefinitionFaults, Node
from policies.definitions.load import MAX_FILE, fault_in_text, parse_tree
from policies.definitions.policy_form import FIELDS, LISTS, POLICY_FILE
from policies.ground.errors import Invalid, invalid

MAX_FORM = 4 * MAX_FILE
"""Bytes of a form with a text: three stand for each letter that is not plain."""
MAX_POLICY = 256 * 1024
"""Characters of one policy: they take about 20 ms of the event loop to read."""
_LARGE = 16 * 1024
"""Characters that take some milliseconds to read."""
_WIDTH = 88
"""A list that fits stands on one line."""

# All else is in quotes: YAML 1.1 takes many words and numbers for something that they are not.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TAKEN_FOR_OTHERS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_ALWAYS_WRITTEN = frozenset(("allowed_sources", "denied_sources"))


class PolicyRead(NamedTuple):
    """What a text says: the policy's body, or the faults that keep it from being one."""

    body: dict[str, Any] | None
    faults: list[DefinitionFault]


def written(body: Mapping[str, Any]) -> str:
    """A policy's body as text, which `read` reads as the same body."""
    lines: list[str] = []
    for key in FIELDS:
        value = body[key]
        if key in LISTS:
            if value or key in _ALWAYS_WRITTEN:
                lines += _list(key, [_scalar(each) for each in value])
        elif value is not None:
            lines.append(f"{key}: {value if isinstance(value, int) else _scalar(value)}")
    return "\n".join(lines) + "\n"


def read(text: str) -> PolicyRead:
    """The one policy of a text."""
    bodies, faults = _parsed(text, MAX_POLICY)
    if len(bodies) != 1 and not faults:
        message = f"must have one entry here, not {len(bodies)}"
        faults = [DefinitionFault("the text", 0, "policies", message)]
    return PolicyRead(None if faults else bodies[0], faults)


async def read_policies(text: str) -> list[dict[str, Any]]:
    """The policies of a text: a policy file (`policies: […]`), a list of policies, or one policy,
    in YAML or JSON. Raises `Invalid`; each line of its details begins with the line of a fault.
    """
    if len(text) < _LARGE:
        bodies, faults = _parsed(text, MAX_FILE)
    else:
        # In a thread: the event loop decides meanwhile.
        bodies, faults = await asyncio.to_thread(_parsed, text, MAX_FILE)
    if faults:
        raise _refused(faults)
    return bodies


def whole_or_part(form: Form) -> dict[str, Any]:
    """Whether the policies of a form are a whole set, or a change of what is in force."""
    if form.get("holds") == "all":
        return {}
    return {"keep_others": True, "without": form.lines("without")}


def _parsed(text: str, most: int) -> tuple[list[dict[str, Any]], list[DefinitionFault]]:
    """The policies of a text, and its faults by line. With faults, some policies are missing."""
    faults = DefinitionFaults("the text")
    found: dict[str, Any] | None = None
    try:
        if len(text) > most:
            faults.add(0, "", f"is larger than {most} characters: use the API for what is larger")
        tree = None if faults.found or fault_in_text(text, faults) else parse_tree(text, faults)
        found = None if tree is None else POLICY_FILE.read("", _as_file(tree), faults)
    except DefinitionFaults.TooManyFaults:
        pass  # `faults` keeps what was found, and its last entry says that there are more
    # YAML finds at the end of the text what its last line lacks.
    last = text.rstrip().count("\n") + 1
    in_order = sorted(each._replace(line=min(each.line, last)) for each in faults.found)
    return [each.body for each in (found or {}).get("policies") or () if each], in_order


def _as_file(tree: Node) -> Node:
    """The text as a policy file would have it."""
    if tree.tag == "map" and "policies" in tree.value:
        return tree
    policies = tree if tree.tag == "list" else Node(tree.line, "list", [tree])
    return Node(tree.line, "map", {"policies": policies})


def _refused(faults: list[DefinitionFault]) -> Invalid:
    lines = [
        ": ".join(filter(None, (f"line {each.line}" if each.line else "", each.key, each.message)))
        for each in faults
    ]
    return invalid(lines, "text")


def _list(key: str, items: list[str]) -> list[str]:
    line = f"{key}: [{', '.join(items)}]"
    return [line] if len(line) <= _WIDTH else [f"{key}:", *(f"  - {each}" for each in items)]


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _TAKEN_FOR_OTHERS:
        return text
    return '"' + "".join(_escaped(each) for each in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    # What turns the direction of a line, or has no width, is seen as what it is.
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
