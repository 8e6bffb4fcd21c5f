"""Judges calls of functions that are open, or closed, by their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sidecar.protocols.postgres.names import CATALOG
from sidecar.protocols.postgres.parameters import Setting, refusal, show_refusal, takes_any_value

Node = dict[str, Any]


def judge_arguments(
    function: str, arguments: Sequence[Node], limits: Mapping[str, int]
) -> str | None:
    """Return why a call is closed by its arguments; None if it is open."""
    if function == "set_config":
        return _set_config(arguments, limits)
    if function == "current_setting":
        return _current_setting(arguments)
    if function == "ts_rewrite" and len(arguments) == 2:
        return "`ts_rewrite` with two arguments runs a query of its own"
    return None


def _set_config(arguments: Sequence[Node], limits: Mapping[str, int]) -> str | None:
    if len(arguments) != 3:
        return "`set_config` takes three arguments"
    name = constant_text(arguments[0])
    if name is None:
        return "`set_config` must name the parameter by a constant"
    name = name.lower()
    value = constant_text(arguments[1])
    if Setting(name, value).attributes is not None:
        return f"`{name}` is set by `SET`, not by `set_config`"
    if value is None:
        if not takes_any_value(name):
            return f"`set_config` must give `{name}` a constant value"
        if "ParamRef" not in _without_casts(arguments[1]):
            return "the value for `set_config` must be a constant or a parameter"
        return None
    return refusal(Setting(name, value), limits)


def _current_setting(arguments: Sequence[Node]) -> str | None:
    if shown_parameter("current_setting", arguments):
        return None
    name = constant_text(arguments[0]) if arguments else None
    if name is None:
        return "`current_setting` must name the parameter by a constant, or by `$1` and the like"
    return show_refusal(name.lower())


def shown_parameter(function: str, arguments: Sequence[Node]) -> int:
    """Return the number of the `$1` by which a call names the run-time parameter to show; 0 if it
    doesn't. SQLAlchemy calls `current_setting` so."""
    if function != "current_setting" or not arguments:
        return 0
    number: int = _without_casts(arguments[0]).get("ParamRef", {}).get("number", 0)
    return number


def value_refusal(value: bytes | None) -> str | None:
    """Return why such a `$1` may not have this value; None if it may."""
    if value is None:
        return None
    name = value.decode("utf-8", "replace").lower()
    # A plain word is the same as a value of any type, in text and in binary.
    if not (name.isascii() and name.isidentifier()):
        return f"`{name}` is not one of the parameters that an agent may see"
    return show_refusal(name)


def constant_text(node: Node) -> str | None:
    """Return the text of a constant string, also one with a cast to `text`; None for anything
    else."""
    constant = _without_casts(node).get("A_Const")
    if constant is None or "sval" not in constant:
        return None
    text: str = constant["sval"].get("sval", "")
    return text


def _without_casts(node: Node) -> Node:
    while "TypeCast" in node:
        written = node["TypeCast"]["typeName"]
        words = [part["String"].get("sval") for part in written.get("names", ())]
        if words[-1:] not in (["text"], ["varchar"]) or words[:-1] not in ([], [CATALOG]):
            return node
        # `'role2'::varchar(4)` is another text.
        if "typmods" in written or "arrayBounds" in written:
            return node
        node = node["TypeCast"]["arg"]
    return node
