"""Writes policies as text for people, and reads such text, reporting every fault with its line."""

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
"""The most bytes of a form with a policy text. In a form, a special character takes three bytes for
each of its own."""
MAX_POLICY = 256 * 1024
"""The most characters of one policy. Reading so many takes about 20 ms of the event loop."""
_LARGE = 16 * 1024
"""The number of characters from which on a text is read in a thread, since it takes some
milliseconds."""
_WIDTH = 88
"""The number of characters up to which a list is written on one line."""

# All else is in quotes: YAML 1.1 takes many words and numbers for something that they are not.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TAKEN_FOR_OTHERS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_ALWAYS_WRITTEN = frozenset(("allowed_sources", "denied_sources"))


class PolicyRead(NamedTuple):
    """The result of reading a policy text: the policy's body, or None and the faults of the
    text."""

    body: dict[str, Any] | None
    faults: list[DefinitionFault]


def written(body: Mapping[str, Any]) -> str:
    """Return a policy's body as text, from which `read` returns the same body."""
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
    """Read the one policy that a text holds. More or fewer than one are a fault."""
    bodies, faults = _parsed(text, MAX_POLICY)
    if len(bodies) != 1 and not faults:
        message = f"must have one entry here, not {len(bodies)}"
        faults = [DefinitionFault("the text", 0, "policies", message)]
    return PolicyRead(None if faults else bodies[0], faults)


async def read_policies(text: str) -> list[dict[str, Any]]:
    """Return the policies of a text: a policy file (`policies: […]`), a list of policies, or one
    policy, in YAML or JSON. Raises `Invalid`; each line of its details begins with the line of a
    fault."""
    if len(text) < _LARGE:
        bodies, faults = _parsed(text, MAX_FILE)
    else:
        # In a thread: the event loop decides meanwhile.
        bodies, faults = await asyncio.to_thread(_parsed, text, MAX_FILE)
    if faults:
        raise _refused(faults)
    return bodies


def whole_or_part(form: Form) -> dict[str, Any]:
    """Return the operation's fields that say whether the policies of the form are a whole set, or a
    change of the set in force."""
    if form.get("holds") == "all":
        return {}
    return {"keep_others": True, "without": form.lines("without")}


def _parsed(text: str, most: int) -> tuple[list[dict[str, Any]], list[DefinitionFault]]:
    """Return the policies of a text, and its faults by line. If there are faults, some policies are
    missing."""
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
    """Return the parsed text in the structure of a policy file."""
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
