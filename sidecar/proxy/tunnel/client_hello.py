"""Finds the server's name in the ClientHello, the first message of TLS (RFC 8446 sections 4.1.2 and
5.1, RFC 6066 section 3). The message may arrive in several segments and several records.

The name is a claim, and proves nothing. A message that two readers could read in two ways is
refused. Pure: knows bytes, no connection.
"""

from ipaddress import ip_address
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.authority import canonical_host

LONGEST = 64 * 1024
"""The longest ClientHello that is accepted, in bytes, record headers included."""

MOST_RECORDS = 16
"""The most TLS records that a ClientHello may be split into. The longest hello fills 4 records, and
clients that split a short one on purpose use two or three."""

HANDSHAKE = 0x16
"""The TLS record type of a handshake: the first byte of every connection that starts with TLS."""

_RECORD_HEADER = 5
_MAX_RECORD = 1 << 14
_CLIENT_HELLO = 1
_MAX_SESSION_ID = 32
_SERVER_NAME = 0
# Encrypted ClientHello (RFC 9849) and its drafts, which hide the name just as well.
_ENCRYPTED = frozenset((0xFE0D, 0xFE08, 0xFE09, 0xFE0A, 0xFE0B, 0xFE0C, 0xFFCE))


class Hello(NamedTuple):
    """A TLS ClientHello. `server_name` is in canonical form, None if the hello names no server.
    With `encrypted`, the real name is hidden behind it (Encrypted ClientHello)."""

    server_name: str | None
    encrypted: bool


class HelloReader:
    """Reads one ClientHello as it arrives. Looks at each byte once, so many small segments or
    records cost the sidecar no more than they cost the client."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._message = bytearray()
        self._taken = 0
        self._records = 0

    def feed(self, data: bytes) -> Hello | None:
        """Take the next bytes. Returns the hello once it is complete, None before. Raises
        `Malformed` as soon as the bytes can't become a hello that is accepted."""
        self._unread += data
        at = 0
        while not self._complete():
            size = self._record_size(at)
            if size is None or len(self._unread) < at + _RECORD_HEADER + size:
                break
            self._message += self._unread[at + _RECORD_HEADER : at + _RECORD_HEADER + size]
            at += _RECORD_HEADER + size
            self._records += 1
            self._check_message()
        del self._unread[:at]
        self._taken += at
        if self._complete():
            return _hello(bytes(self._message[4:]))
        if self._taken + len(self._unread) >= LONGEST:
            raise Malformed(f"the TLS hello is longer than {LONGEST} bytes")
        return None

    def _complete(self) -> bool:
        # One byte for the type and three for the length precede the hello (RFC 8446 section 4).
        message = self._message
        return len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4])

    def _record_size(self, at: int) -> int | None:
        """Return the length of the TLS record whose header begins at `at`; None if the header is
        incomplete. Raises `Malformed` if it is not a handshake record, or can't be part of a hello
        that is accepted."""
        head = self._unread[at : at + _RECORD_HEADER]
        if head and head[0] != HANDSHAKE:
            raise Malformed("the connection does not begin with a TLS hello")
        if len(head) < _RECORD_HEADER:
            return None
        # The minor version differs between clients and means nothing (RFC 8446 section 5.1).
        if head[1] != 3:
            raise Malformed(f"TLS record version {head[1]}.{head[2]} is not 3.x")
        size = int.from_bytes(head[3:5])
        # A handshake message may not be sent in empty records (RFC 8446 section 5.1).
        if not 0 < size <= _MAX_RECORD:
            raise Malformed(f"the TLS record length {size} is not 1 to {_MAX_RECORD}")
        if self._records >= MOST_RECORDS:
            raise Malformed(f"the TLS hello is split into more than {MOST_RECORDS} records")
        # Refused by its first byte, before the rest of the record is awaited.
        first = (self._message or self._unread[at + _RECORD_HEADER : at + _RECORD_HEADER + 1])[:1]
        if first and first[0] != _CLIENT_HELLO:
            raise Malformed("the connection does not begin with a TLS hello")
        return size

    def _check_message(self) -> None:
        message = self._message
        if len(message) < 4:
            return
        whole = 4 + int.from_bytes(message[1:4])
        if whole > LONGEST:
            raise Malformed(f"the TLS hello is longer than {LONGEST} bytes")
        if len(message) > whole:
            # Another message in the same record: the server would read it, the sidecar not.
            raise Malformed("the TLS hello is not alone in its record")


def _hello(message: bytes) -> Hello:
    reader = _ByteReader(message)
    reader.take(2)  # version
    reader.take(32)  # random
    if len(reader.take(reader.number(1))) > _MAX_SESSION_ID:
        raise Malformed("the TLS hello can't be read")
    suites = reader.take(reader.number(2))
    methods = reader.take(reader.number(1))
    if not suites or len(suites) % 2 or not methods:
        raise Malformed("the TLS hello can't be read")
    # A hello of TLS 1.2 may end before the extensions (RFC 5246 section 7.4.1.2).
    extensions = _ByteReader(reader.take(reader.number(2))) if reader.left else _ByteReader(b"")
    reader.finish()
    found: dict[int, bytes] = {}
    while extensions.left:
        kind = extensions.number(2)
        if kind in found:
            raise Malformed("the TLS hello has an extension twice")
        found[kind] = extensions.take(extensions.number(2))
    return Hello(_server_name(found.get(_SERVER_NAME)), not _ENCRYPTED.isdisjoint(found))


def _server_name(extension: bytes | None) -> str | None:
    if extension is None:
        return None
    outer = _ByteReader(extension)
    names = _ByteReader(outer.take(outer.number(2)))
    outer.finish()
    if names.number(1) != 0:
        raise Malformed("the TLS hello names something other than a host")
    name = names.take(names.number(2))
    # Only one name of a type is allowed (RFC 6066 section 3).
    names.finish()
    # International names are sent as A-labels, which are ASCII (RFC 6066 section 3).
    host = canonical_host(name.decode()) if name.isascii() else ""
    if not host or _is_address(host):
        raise Malformed("the name in the TLS hello is not a host name")
    return host


def _is_address(host: str) -> bool:
    """Return whether the name is an IP address. Addresses aren't permitted as server names (RFC
    6066 section 3)."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _ByteReader:
    """Reads fields from the front of a byte string. Raises `Malformed` if bytes are missing, or
    left over at the end."""

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
            raise Malformed("the TLS hello has bytes left over after its last field")
