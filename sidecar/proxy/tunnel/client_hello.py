"""The first message of TLS, as far as it says whom it is for (RFC 8446 sections 4.1.2 and 5.1, RFC
6066 section 3). It may come in several segments and several records.

What it says is a claim; nothing is proven by it. A message that two readers could read in two ways
is none. Pure: knows bytes, no connection.
"""

from ipaddress import ip_address
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.authority import canonical_host

LONGEST = 64 * 1024
"""The longest message that is waited for, in bytes, its records included."""

MOST_RECORDS = 16
"""The most records that it may be split into: the longest hello fills 4, and clients that split a
short one on purpose make two or three."""

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


class HelloReader:
    """Reads one hello as it arrives. Each byte is looked at once, so what a client pays for sending
    many small segments or records is not multiplied here."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._message = bytearray()
        self._taken = 0
        self._records = 0

    def feed(self, data: bytes) -> Hello | None:
        """Takes the next bytes of the connection; the hello once it is whole, None before. Raises
        `Malformed` as soon as what came can't become a hello that is accepted."""
        self._unread += data
        at = 0
        while not self._whole():
            size = self._record_size(at)
            if size is None or len(self._unread) < at + _RECORD + size:
                break
            self._message += self._unread[at + _RECORD : at + _RECORD + size]
            at += _RECORD + size
            self._records += 1
            self._check_message()
        del self._unread[:at]
        self._taken += at
        if self._whole():
            return _hello(bytes(self._message[4:]))
        if self._taken + len(self._unread) >= LONGEST:
            raise Malformed(f"the TLS hello is longer than {LONGEST} bytes")
        return None

    def _whole(self) -> bool:
        message = self._message
        return len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4])

    def _record_size(self, at: int) -> int | None:
        """The length of the record that begins at `at`; None where its head is not all there."""
        head = self._unread[at : at + _RECORD]
        if head and head[0] != HANDSHAKE:
            raise Malformed("the connection does not begin with a TLS hello")
        if len(head) < _RECORD:
            return None
        if head[1] != 3:
            raise Malformed("the version of the TLS record is unknown")
        size = int.from_bytes(head[3:5])
        if not 0 < size <= _MOST_OF_A_RECORD:
            raise Malformed(f"the TLS record length {size} is not 1 to {_MOST_OF_A_RECORD}")
        if self._records >= MOST_RECORDS:
            raise Malformed(f"the TLS hello is split into more than {MOST_RECORDS} records")
        first = (self._message or self._unread[at + _RECORD : at + _RECORD + 1])[:1]
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
            # Another message in the same record: a server may read on where we stop.
            raise Malformed("the TLS hello is not alone in its record")


def parse(data: bytes) -> Hello | None:
    """The hello that `data` begins with; None where more is needed. Raises `Malformed`."""
    return HelloReader().feed(data)


def _hello(message: bytes) -> Hello:
    reader = _ByteReader(message)
    reader.take(2)  # version
    reader.take(32)  # random
    if len(reader.take(reader.number(1))) > _MOST_OF_A_SESSION:
        raise Malformed("the TLS hello can't be read")
    suites = reader.take(reader.number(2))
    methods = reader.take(reader.number(1))
    if not suites or len(suites) % 2 or not methods:
        raise Malformed("the TLS hello can't be read")
    extensions = _ByteReader(reader.take(reader.number(2))) if reader.left else _ByteReader(b"")
    reader.finish()
    found: dict[int, bytes] = {}
    while extensions.left:
        kind = extensions.number(2)
        if kind in found:
            raise Malformed("the TLS hello has an extension twice")
        found[kind] = extensions.take(extensions.number(2))
    return Hello(_named(found.get(_SERVER_NAME)), not _ENCRYPTED.isdisjoint(found))


def _named(extension: bytes | None) -> str | None:
    if extension is None:
        return None
    outer = _ByteReader(extension)
    names = _ByteReader(outer.take(outer.number(2)))
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


class _ByteReader:
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
