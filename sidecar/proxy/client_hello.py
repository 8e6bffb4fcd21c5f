"""The first message of TLS, as far as it says whom it is for (RFC 8446 sections 4.1.2 and 5.1, RFC
6066 section 3). It may come in several segments and several records.

What it says is a claim; nothing is proven by it. A message that two readers could read in two ways
is none. Pure: knows bytes, no connection.
"""

from ipaddress import ip_address
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.proxy.hosts import canonical_host

LONGEST = 64 * 1024
"""The longest message that is waited for, in bytes, its records included."""

HANDSHAKE = 0x16
"""The first byte of every connection that begins with TLS."""

_RECORD = 5
_MOST_OF_A_RECORD = 1 << 14
_CLIENT_HELLO = 1
_MOST_OF_A_SESSION = 32
_SERVER_NAME = 0
# RFC 9849, and before it its drafts: what they hide is hidden all the same.
_ENCRYPTED = frozenset((0xFE0D, 0xFE08, 0xFE09, 0xFE0A, 0xFE0B, 0xFE0C, 0xFFCE))


class Hello(NamedTuple):
    """`server_name` in the one form of a host, None where it names nobody; `encrypted` where the
    name that counts is hidden behind it (encrypted client hello)."""

    server_name: str | None
    encrypted: bool


def parse(data: bytes) -> Hello | None:
    """The hello that `data` begins with; None where more is needed. Raises `Malformed`."""
    message = _message(data)
    if message is None:
        if len(data) >= LONGEST:
            raise Malformed("the TLS hello is too long")
        return None
    reader = _Reader(message)
    reader.take(2)  # version
    reader.take(32)  # random
    if len(reader.take(reader.number(1))) > _MOST_OF_A_SESSION:
        raise Malformed("the TLS hello can't be read")
    suites = reader.take(reader.number(2))
    methods = reader.take(reader.number(1))
    if not suites or len(suites) % 2 or not methods:
        raise Malformed("the TLS hello can't be read")
    extensions = _Reader(reader.take(reader.number(2))) if reader.left else _Reader(b"")
    reader.finish()
    found: dict[int, bytes] = {}
    while extensions.left:
        kind = extensions.number(2)
        if kind in found:
            raise Malformed("the TLS hello has an extension twice")
        found[kind] = extensions.take(extensions.number(2))
    return Hello(_named(found.get(_SERVER_NAME)), not _ENCRYPTED.isdisjoint(found))


def _message(data: bytes) -> bytes | None:
    """The hello itself, out of its records."""
    message = bytearray()
    at = 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        if data[at : at + 1] not in (b"", bytes([HANDSHAKE])):
            raise Malformed("the connection does not begin with a TLS hello")
        if message and message[0] != _CLIENT_HELLO:
            raise Malformed("the connection does not begin with a TLS hello")
        if len(data) < at + _RECORD:
            return None
        if data[at + 1] != 3:
            raise Malformed("the version of the TLS record is unknown")
        size = int.from_bytes(data[at + 3 : at + 5])
        if not 0 < size <= _MOST_OF_A_RECORD:
            raise Malformed("the TLS record has no length that may be")
        message += data[at + _RECORD : at + _RECORD + size]
        if len(message) >= 4 and 4 + int.from_bytes(message[1:4]) > LONGEST:
            raise Malformed("the TLS hello is too long")
        if len(data) < at + _RECORD + size:
            return None
        at += _RECORD + size
    if message[0] != _CLIENT_HELLO:
        raise Malformed("the connection does not begin with a TLS hello")
    whole = 4 + int.from_bytes(message[1:4])
    if len(message) > whole:
        # Another message in the same record: a server may read on where we stop.
        raise Malformed("the TLS hello is not alone in its record")
    return bytes(message[4:])


def _named(extension: bytes | None) -> str | None:
    if extension is None:
        return None
    outer = _Reader(extension)
    names = _Reader(outer.take(outer.number(2)))
    outer.finish()
    if names.number(1) != 0:
        raise Malformed("the TLS hello names something else than a host")
    name = names.take(names.number(2))
    # More than one name is nobody's (RFC 6066).
    names.finish()
    # Whoever is sent an international name is sent its A-labels.
    host = canonical_host(name.decode()) if name.isascii() else ""
    if not host or _is_address(host):
        raise Malformed("the TLS hello names no host")
    return host


def _is_address(host: str) -> bool:
    """An address is not permitted (RFC 6066 section 3): no certificate is chosen by one."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _Reader:
    """Takes bytes off the front; what is missing is `Malformed`, and so is what is left over."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Malformed("the TLS hello can't be read")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def finish(self) -> None:
        if self.left:
            raise Malformed("the TLS hello has more in it than it says")
