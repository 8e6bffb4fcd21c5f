"""Brings a host and port (an authority, RFC 3986 section 3.2) into canonical form, from requests
and configuration alike (`proxy/RULES.md`, Hosts and ports), and matches names with the patterns of
the settings' `hosts`.

    a name       IDNA to A-labels, lower case, one trailing dot removed
    IPv4         four decimal numbers only: `127.1`, `0x7f.1` and `017.0.0.1` are refused, because
                 some resolvers read them as addresses
    IPv6         compressed; in brackets if a port follows

Pure: parses text, resolves nothing.
"""

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

import idna

from policies.ground.errors import Malformed

DEFAULT_PORTS = {"http": 80, "https": 443}

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?").fullmatch
_PORT = re.compile(r"[1-9][0-9]{0,4}").fullmatch
# A host whose last label looks like this is parsed as an IPv4 address by browsers and resolvers
# (WHATWG URL, "ends in a number").
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch
_MAX_NAME = 253
"""The most characters in a DNS name (RFC 1035)."""


class Authority(NamedTuple):
    """A host in canonical form (IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# An agent names few hosts, in each request. Only valid ones are kept, which are short.
@lru_cache(maxsize=128)
def canonical_host(text: str) -> str:
    """Return the canonical form of a host without a port. Raises `Malformed` if `text` is not a
    host or could be read as a different one."""
    if text.startswith("["):
        if not text.endswith("]"):
            raise Malformed("the host has no closing bracket")
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    name = text if text.isascii() else _a_labels(text)
    name = name.lower().removesuffix(".")
    labels = name.split(".")  # an empty label, as in `a..b`, does not match
    if len(name) > _MAX_NAME or not all(_LABEL(label) for label in labels):
        raise Malformed("the host is not a valid host name or IP address")
    if _NUMBER(labels[-1]):
        return _ipv4(name)
    return name


def authority(text: str, default: int | None = None) -> Authority:
    """Parse `host:port`, and return both in canonical form. `default` is the port if `text` has
    none; without a default, the port is required. Raises `Malformed`."""
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        if default is None:
            raise Malformed("the port is missing")
        return Authority(canonical_host(text), default)
    if ":" in host and not host.startswith("["):
        raise Malformed("an IPv6 host must be in brackets, as in `[::1]:8000`")
    if not _PORT(port) or int(port) > 65535:
        raise Malformed("the port is not a number from 1 to 65535")
    return Authority(canonical_host(host), int(port))


def _a_labels(text: str) -> str:
    try:
        # UTS 46 maps capitals, full-width letters and the like, so that each name has one form.
        return idna.encode(text, uts46=True).decode()
    except idna.IDNAError:
        raise Malformed("the host is not a valid internationalised name (IDNA)") from None


def _ipv4(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        raise Malformed("the host ends in a number, but is not an IPv4 address") from None


def _ipv6(text: str) -> str:
    if "%" in text:
        # A zone names a network interface, which means something else on each host (RFC 4007).
        raise Malformed("the host is an IPv6 address with a zone, which is not allowed")
    try:
        return compressed(IPv6Address(text))
    except AddressValueError:
        raise Malformed("the host is not a valid IPv6 address") from None


def compressed(address: IPv6Address) -> str:
    """Return the address as text that is the same in every version of Python: Python 3.13 writes
    the last half of `::ffff:102:304` as an IPv4 address."""
    mapped = address.ipv4_mapped
    if mapped is None:
        return str(address)
    high, low = divmod(int(mapped), 1 << 16)
    return f"::ffff:{high:x}:{low:x}"


class HostPattern(NamedTuple):
    """An entry of the setting `hosts`: it matches one name or, with `wild`, every name below that
    name. `port` is None if it matches any port."""

    name: str
    port: int | None
    wild: bool

    @classmethod
    def parse(cls, text: str) -> "HostPattern":
        """Parse `name` or `*.name`, either with or without a port. Raises `Malformed`."""
        wild = text.startswith("*.")
        name = text[2:] if wild else text
        # A colon inside the brackets of an IPv6 address doesn't begin a port.
        if ":" in name.rpartition("]")[2]:
            host, port = authority(name)
            found = cls(host, port, wild)
        else:
            found = cls(canonical_host(name), None, wild)
        if wild and (":" in found.name or found.name.rpartition(".")[2].isdigit()):
            raise Malformed("an address has no names below it")
        return found

    def covers(self, host: str) -> bool:
        """Return whether the pattern matches `host`, at any port."""
        return host.endswith(f".{self.name}") if self.wild else host == self.name

    def matches(self, host: Authority) -> bool:
        return self.covers(host.host) and self.port in (None, host.port)
