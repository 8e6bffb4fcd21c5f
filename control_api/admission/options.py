"""The options that a pod may set by annotations `config.sluice/<option>`, and the form of their
values. Knows no pod.

An option has an effect only if the fragment lists it: the chart's values are the allow-list.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from policies.definitions.definition import shown

MAX_LENGTH = 512
MAX_ITEMS = 32
# At most ten digits are matched, so that no huge number is ever converted.
_PORTS = re.compile(r"\A([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")
_LEVELS = ("debug", "info", "warning", "error")


def _ports(value: str) -> str | None:
    for item in value.split(","):
        match = _PORTS.match(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= 65535:
            return f"{shown(item)} is not a port or a range from 1 to 65535, such as `5432-5440`"
    return None


def _level(value: str) -> str | None:
    return None if value in _LEVELS else f"{shown(value)} is not one of {', '.join(_LEVELS)}"


OPTIONS: dict[str, Callable[[str], str | None]] = {
    "log-level": _level,
    "skip-outbound-ports": _ports,
}
"""Every option, and what returns the complaint about a value."""


def fault(option: str, value: object) -> str | None:
    """What is wrong with the option's value, or None."""
    if not isinstance(value, str):
        return "the value must be a text"
    if len(value) > MAX_LENGTH or value.count(",") >= MAX_ITEMS:
        return f"the value is over the limit of {MAX_LENGTH} characters or {MAX_ITEMS} items"
    return OPTIONS[option](value)
