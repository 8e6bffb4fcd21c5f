"""The one form of a host and its port, whoever wrote it (proxy.md A4).

    a name       IDNA to A-labels, lower case, one trailing dot taken off
    IPv4         four decimal numbers, and no other spelling of one: `127.1`, `0x7f.1`, `017.0.0.1`
                 are refused, since some resolvers read them as addresses
    IPv6         in brackets where a port follows; the compressed form

Pure. Knows no resolver: what a name stands for is not its matter.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

import idna

from policies.ground.errors import Malformed

DEFAULT_PORTS = {"http": 80, "https": 443}

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?").fullmatch
_PORT = re.compile(r"[1-9][0-9]{0,4}").fullmatch
# What ends like this is a number to whoever reads addresses (WHATWG URL, "ends in a number").
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch
_MOST = 253


class Authority(NamedTuple):
    """A canonical host, an IPv6 one without brackets, and its port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def canonical_host(text: str) -> str:
    """The canonical form of a host without a port; `Malformed` where it is none, or could be read
    as another."""
    if text.startswith("["):
        if not text.endswith("]"):
            raise Malformed("the host is not a host")
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    name = text if text.isascii() else _a_labels(text)
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _MOST or not all(_LABEL(label) for label in labels):
        raise Malformed("the host is not a host")
    if _NUMBER(labels[-1]):
        return _ipv4(name)
    return name


def authority(text: str, default: int | None = None) -> Authority:
    """`host:port` in canonical form. `default` stands for a port that is not there; without one it
    must be."""
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        if default is None:
            raise Malformed("the port is missing")
        return Authority(canonical_host(text), default)
    if ":" in host and not host.startswith("["):
        raise Malformed("an IPv6 host stands in brackets")
    if not _PORT(port) or int(port) > 65535:
        raise Malformed("the port is not a number from 1 to 65535")
    return Authority(canonical_host(host), int(port))


def _a_labels(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode()
    except idna.IDNAError:
        raise Malformed("the host is no international name") from None


def _ipv4(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        raise Malformed("the host is a number that is no IPv4 address") from None


def _ipv6(text: str) -> str:
    if "%" in text:
        # A zone names an interface of whoever reads it.
        raise Malformed("the host is an IPv6 address with a zone")
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        raise Malformed("the host is no IPv6 address") from None
