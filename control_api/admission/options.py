"""The options that a pod may set by annotations `config.sluice/<option>`, and the form of their
values. Knows no pod. The chart holds the same forms in CEL (`templates/_refusals.tpl`).

An option has an effect only if the fragment lists it: the chart's values are the allow-list.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_LENGTH = 512
MAX_ITEMS = 32
# At most ten digits are matched, so that no huge number is ever converted.
_PORTS = re.compile(r"\A([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")
_LEVELS = ("debug", "info", "warning", "error")


def _ports(value: str) -> bool:
    if len(value) > MAX_LENGTH:
        return False
    items = value.split(",")
    return len(items) <= MAX_ITEMS and all(map(_port, items))


def _port(item: str) -> bool:
    match = _PORTS.match(item)
    return match is not None and 1 <= int(match[1]) <= int(match[2] or match[1]) <= 65535


def _level(value: str) -> bool:
    return value in _LEVELS


OPTIONS: dict[str, Callable[[str], bool]] = {
    "log-level": _level,
    "skip-outbound-ports": _ports,
}
"""Every option, and what says whether a value has its form."""


def fits(option: str, value: object) -> bool:
    """Whether the option can have this value."""
    return isinstance(value, str) and OPTIONS[option](value)
