"""Reads JSON scalars from a YAML file, whose own scalars have more spellings. Knows no key."""

import json
import math

from policies.definitions.definition import Node, shown
from sidecar.settings.authzen import Scalar


def json_scalars(
    node: Node | None, text_tag: str
) -> tuple[dict[str, Scalar], list[tuple[int, str, str]]]:
    """The scalars in a mapping, and what is wrong with it: a line, where below the mapping (such as
    `.name`), and the fault. `text_tag` marks texts, as `str` does."""
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
    """The scalar in `node`; `ValueError` if it is anything else."""
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
