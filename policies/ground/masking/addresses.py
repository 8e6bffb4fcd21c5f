"""Recognizes IP addresses, version 4 and 6, but not version numbers, times or C++ names."""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv6Address

from policies.ground.masking.recognizer import Found, Recognizer

# Not within a longer word or number: `v1.2.3.4`, `1.2.3.4.5` and `1.2.3.4-beta` are versions.
_ipv4 = re.compile(
    r"(?<![\w.-])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w-]|\.\w)",
    re.ASCII,
).finditer
_ipv6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{3,39}(?:\.[0-9]{1,3}){0,3}(?![\w:])").finditer
_version = re.compile(r"(?i)(?:\bv|versions?|release|build|revision|[=><~^]=)[\s:=.]{0,3}\Z").search
_likely = re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|:[0-9A-Fa-f]{0,4}:").search


def _spans(text: str) -> Iterator[Found]:
    for match in _ipv4(text):
        version = _version(text, max(0, match.start() - 12), match.start())
        yield None if version else match.span()
    for match in _ipv6(text):
        yield match.span() if is_ipv6(match.group()) else None


def is_ipv6(text: str) -> bool:
    # `face::cafe` is valid, but without a digit it is a C++ name more often than an address.
    if text.count(":") < 2 or not any(char.isdigit() for char in text):
        return False
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


IP = Recognizer("IP", _likely, _spans)
