"""A client of PostgreSQL's wire protocol that sends any bytes and keeps every byte it receives.

Drivers hide what a proxy might leak: notices, descriptions of columns, what stands behind an error.
A `Connection` shows all messages, and sends frames that no driver would. Both query protocols are
here; what a text or a value means is not.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

PROTOCOL_3_0 = 0x30000
CANCEL_REQUEST = 80877102
SSL_REQUEST = 80877103
SECONDS = 30.0
"""How long a connection waits for bytes: then something hangs."""
IMPLICIT_NULL = -1
_READY = b"Z\0\0\0\5"


class Address(NamedTuple):
    """Where a server or a sidecar listens, and who logs in there."""

    host: str
    port: int
    database: str
    user: str
    password: str


class Message(NamedTuple):
    """A message of the server: its type, one letter, and its body without the length."""

    kind: str
    body: bytes


class Closed(Exception):
    """The other side closed the connection before a message was complete."""


class Refused(Exception):
    """The server answered the startup or the login with an error; it carries the error's fields."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(fields.get("M", ""))
        self.fields = fields


class Connection:
    """A session. `received` holds every byte that arrived, in order."""

    def __init__(self, address: Address, startup: dict[str, str] | None = None) -> None:
        """Connect and log in. `startup` replaces or adds parameters of the startup message.

        Raises `Refused` if the server answers with an error, `OSError` if nothing listens."""
        self.address = address
        self.received = bytearray()
        self.key = (0, b"")
        """The server's process id and the secret, for `cancel`."""
        self._read = 0
        self._socket = socket.create_connection((address.host, address.port), SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._log_in({"user": address.user, "database": address.database} | (startup or {}))
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self.send_raw(frame("X"))
        self.close()

    def close(self) -> None:
        """Close the socket, without a word."""
        self._socket.close()

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self) -> Message:
        """Return the next message. Raises `Closed` at the end, `TimeoutError` after 30 s."""
        kind, length = struct.unpack("!cI", self._exactly(5))
        return Message(kind.decode("latin-1"), self._exactly(length - 4))

    def messages(self, end: str = "Z") -> list[Message]:
        """Return the messages up to one whose type is in `end` (`ReadyForQuery`, if none is given).
        A `COPY … FROM STDIN` that the server asks data for is failed."""
        found = []
        while True:
            try:
                found.append(self.receive())
            except Closed:
                return [*found, Message("closed", b"")]
            if found[-1].kind in end:
                return found
            if found[-1].kind == "G":
                self.send_raw(frame("f", text("no data")))

    def exchange(self, data: bytes) -> int:
        """Send messages that end with a `Sync` or a `Query`, and return the number of bytes of the
        answer, which is neither kept nor taken apart: a client that costs next to nothing."""
        self.send_raw(data)
        size, end = 0, b""
        while end[:5] != _READY:
            arrived = self._socket.recv(1 << 18)
            if not arrived:
                raise Closed
            size += len(arrived)
            end = (end + arrived)[-6:]
        return size

    def simple(self, sql: str) -> list[Message]:
        """Return the answer to a `Query` message, with its `ReadyForQuery`."""
        self.send_raw(query(sql))
        return self.messages()

    def extended(
        self,
        sql: str,
        values: Sequence[bytes | None] = (),
        *,
        binary: bool = False,
        rows: int = 0,
    ) -> list[Message]:
        """Return the answer to Parse, Bind, Describe, Execute and Sync of an unnamed statement.
        `values` are texts; `binary` asks for binary results; `rows` limits those of Execute."""
        results = (1,) if binary else ()
        self.send_raw(
            parse(sql) + bind(values, results=results) + describe("P") + execute(rows=rows) + sync()
        )
        return self.messages()

    def cancel(self) -> None:
        """Send a `CancelRequest` for this session, by a connection of its own, as clients do."""
        process, secret = self.key
        with socket.create_connection((self.address.host, self.address.port), SECONDS) as other:
            body = struct.pack("!II", CANCEL_REQUEST, process) + secret
            other.sendall(struct.pack("!I", len(body) + 4) + body)
            while other.recv(1024):
                pass

    def _log_in(self, parameters: dict[str, str]) -> None:
        pairs = b"".join(text(each) for pair in parameters.items() for each in pair) + b"\0"
        body = struct.pack("!I", PROTOCOL_3_0) + pairs
        self.send_raw(struct.pack("!I", len(body) + 4) + body)
        scram = Scram(self.address.password)
        while True:
            kind, body = self.receive()
            if kind == "E":
                raise Refused(fields(body))
            if kind == "K":
                self.key = (struct.unpack_from("!I", body)[0], body[4:])
            if kind == "Z":
                return
            if kind == "R":
                self._authenticate(struct.unpack_from("!I", body)[0], body[4:], scram)

    def _authenticate(self, request: int, data: bytes, scram: Scram) -> None:
        if request == 3:
            self.send_raw(frame("p", text(self.address.password)))
        elif request == 10:
            first = scram.first()
            initial = text("SCRAM-SHA-256") + struct.pack("!I", len(first)) + first
            self.send_raw(frame("p", initial))
        elif request == 11:
            self.send_raw(frame("p", scram.last(data)))
        elif request == 12:
            assert data == b"v=" + base64.b64encode(scram.server_signature)
        else:
            assert request == 0, f"authentication request {request}"

    def _exactly(self, count: int) -> bytes:
        while len(self.received) < self._read + count:
            data = self._socket.recv(1 << 18)
            if not data:
                raise Closed
            self.received += data
        self._read += count
        return bytes(self.received[self._read - count : self._read])


class Scram:
    """The client's side of SCRAM-SHA-256, without channel binding (RFC 5802, RFC 7677)."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._bare = f"n=,r={secrets.token_urlsafe(18)}".encode()
        self.server_signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return b"n,," + self._bare

    def last(self, challenge: bytes) -> bytes:
        """Return the client's final message; afterwards `server_signature` is what the server must
        answer with."""
        nonce, salt, rounds = (part[2:] for part in challenge.split(b","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", self._password, base64.b64decode(salt), int(rounds.decode())
        )
        key = _mac(salted, b"Client Key")
        unproved = b"c=biws,r=" + nonce
        signed = b",".join((self._bare, challenge, unproved))
        signature = _mac(hashlib.sha256(key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self.server_signature = _mac(_mac(salted, b"Server Key"), signed)
        return unproved + b",p=" + base64.b64encode(proof)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def text(value: str) -> bytes:
    """Return a text as the protocol has it: UTF-8 and a zero byte."""
    return value.encode() + b"\0"


def frame(kind: str, body: bytes = b"", length: int | None = None) -> bytes:
    """Return a message. A `length` that is given replaces the true one, which counts itself."""
    claimed = len(body) + 4 if length is None else length
    return kind.encode() + struct.pack("!I", claimed & 0xFFFFFFFF) + body


def query(sql: str) -> bytes:
    """Return a message of the simple protocol."""
    return frame("Q", text(sql))


def parse(sql: str, name: str = "", types: Sequence[int] = ()) -> bytes:
    """Return a Parse message; `types` are oids of parameters, 0 for one to be inferred."""
    return frame("P", text(name) + text(sql) + struct.pack(f"!H{len(types)}I", len(types), *types))


def bind(
    values: Sequence[bytes | None] = (),
    *,
    name: str = "",
    portal: str = "",
    formats: Sequence[int] = (),
    results: Sequence[int] = (),
) -> bytes:
    """Return a Bind message; in `formats` and `results` 1 means binary, none at all means text."""
    body = text(portal) + text(name) + struct.pack(f"!H{len(formats)}H", len(formats), *formats)
    body += struct.pack("!H", len(values))
    for value in values:
        size = IMPLICIT_NULL if value is None else len(value)
        body += struct.pack("!i", size) + (value or b"")
    return frame("B", body + struct.pack(f"!H{len(results)}H", len(results), *results))


def describe(kind: str, name: str = "") -> bytes:
    """Return a Describe message of a statement (`S`) or a portal (`P`)."""
    return frame("D", kind.encode() + text(name))


def execute(portal: str = "", rows: int = 0) -> bytes:
    """Return an Execute message; 0 rows are all."""
    return frame("E", text(portal) + struct.pack("!I", rows))


def close(kind: str, name: str = "") -> bytes:
    """Return a Close message of a statement (`S`) or a portal (`P`)."""
    return frame("C", kind.encode() + text(name))


def sync() -> bytes:
    """Return a Sync message."""
    return frame("S")


def flush() -> bytes:
    """Return a Flush message."""
    return frame("H")


def function_call(oid: int, arguments: Sequence[bytes]) -> bytes:
    """Return a FunctionCall message with arguments and a result as text."""
    body = struct.pack("!IHH", oid, 0, len(arguments))
    for value in arguments:
        body += struct.pack("!i", len(value)) + value
    return frame("F", body + struct.pack("!H", 0))


def fields(body: bytes) -> dict[str, str]:
    """Return the fields of an error or a notice by their letters: `C` is the SQLSTATE, `M` the
    message, `D` the detail, `H` the hint, `W` the context."""
    parts = body.rstrip(b"\0").split(b"\0")
    return {part[:1].decode(): part[1:].decode("utf-8", "replace") for part in parts}


def columns(body: bytes) -> list[str]:
    """Return the names of the columns in a RowDescription."""
    [count] = struct.unpack_from("!H", body)
    names, at = [], 2
    for _ in range(count):
        end = body.index(0, at)
        names.append(body[at:end].decode("utf-8", "replace"))
        at = end + 19
    return names


def row(body: bytes) -> list[bytes | None]:
    """Return the values of a DataRow."""
    return list(_values(body))


def rows(answer: Sequence[Message]) -> list[list[bytes | None]]:
    """Return the rows in an answer."""
    return [row(message.body) for message in answer if message.kind == "D"]


def errors(answer: Sequence[Message]) -> list[dict[str, str]]:
    """Return the fields of the errors in an answer."""
    return [fields(message.body) for message in answer if message.kind == "E"]


def _values(body: bytes) -> Iterator[bytes | None]:
    [count] = struct.unpack_from("!H", body)
    at = 2
    for _ in range(count):
        [size] = struct.unpack_from("!i", body, at)
        at += 4
        yield None if size < 0 else body[at : at + size]
        at += max(size, 0)
