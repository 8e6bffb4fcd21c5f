"""The options that a pod may set by annotations `config.sluice/<option>`, and the form of their
values. Knows no pod. The chart holds the same forms in CEL (`templates/_refusals.tpl`).

An option has an effect only if the fragment lists it: the chart's values are the allow-list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network

MAX_LENGTH = 512
MAX_ITEMS = 32
# At most ten digits are matched, so that no huge number is ever converted.
_PORTS = re.compile(r"\A([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_WORD = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join((
    f"({_WORD}:){{7}}{_WORD}",
    f"({_WORD}:){{1,7}}:",
    *(f"({_WORD}:){{1,{before}}}(:{_WORD}){{1,{7 - before}}}" for before in range(1, 7)),
    f":(:{_WORD}){{1,7}}",
    "::",
))  # fmt: skip
# Wider networks than these would leave little to judge.
_NETWORK = re.compile(
    f"({_BYTE}[.]){{3}}{_BYTE}/([89]|[12][0-9]|3[0-2])"
    f"|({_IPV6})/(3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-8])"
)
# `sluice redirect` proves its rules with addresses of these.
_PROOF = (IPv4Network("192.0.2.0/24"), IPv6Network("2001:db8::/32"))
_LEVELS = ("debug", "info", "warning", "error")


def _ports(value: str) -> bool:
    if len(value) > MAX_LENGTH:
        return False
    items = value.split(",")
    return len(items) <= MAX_ITEMS and all(map(_port, items))


def _port(item: str) -> bool:
    match = _PORTS.match(item)
    return match is not None and 1 <= int(match[1]) <= int(match[2] or match[1]) <= 65535


def _networks(value: str) -> bool:
    if len(value) > MAX_LENGTH:
        return False
    items = value.split(",")
    return len(items) <= MAX_ITEMS and all(map(_network, items))


def _network(item: str) -> bool:
    # The form comes first: `ip_network` also takes netmasks, zones and embedded IPv4 addresses.
    if not _NETWORK.fullmatch(item):
        return False
    network = ip_network(item, strict=False)
    return not any(network.version == each.version and network.overlaps(each) for each in _PROOF)


def _level(value: str) -> bool:
    return value in _LEVELS


def _flag(value: str) -> bool:
    return value in ("true", "false")


NATIVE = "native-sidecar"
"""The option that makes the sidecar a native one; `false` makes it an ordinary container."""

OPTIONS: dict[str, Callable[[str], bool]] = {
    "log-level": _level,
    NATIVE: _flag,
    "skip-outbound-ports": _ports,
    "skip-subnets": _networks,
}
"""Every option, and the function that tells whether a value has its form."""


def fits(option: str, value: object) -> bool:
    """Return whether the option can have this value."""
    return isinstance(value, str) and OPTIONS[option](value)
