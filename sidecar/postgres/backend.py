"""The messages that a server sends: what the sidecar answers to an agent is built, and what a
server sends to the sidecar is parsed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from sidecar.postgres.frames import Frame, MessageFault
from sidecar.postgres.payload import NULL, PayloadReader, int16, int32, message, text

Severity = Literal["ERROR", "FATAL", "PANIC", "WARNING", "NOTICE", "DEBUG", "INFO", "LOG"]
Status = Literal[b"I", b"T", b"E"]
"""No transaction, in a transaction, in a failed transaction."""

# ---------------------------------------------------------------------------- what goes to an agent

AUTHENTICATION_OK = message(b"R", int32(0))
AUTHENTICATION_CLEARTEXT = message(b"R", int32(3))
PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
PORTAL_SUSPENDED = message(b"s")


def error(
    sqlstate: str,
    said: str,
    detail: str | None = None,
    hint: str | None = None,
    severity: Severity = "ERROR",
    position: int | None = None,
) -> bytes:
    """Return an ErrorResponse. A NUL in a text is left out. `position` is a character of the
    statement's text, counted from 1."""
    place = None if position is None else str(position)
    return message(b"E", _fields(severity, sqlstate, said, detail, hint, place))


def notice(
    sqlstate: str,
    said: str,
    detail: str | None = None,
    hint: str | None = None,
    severity: Severity = "NOTICE",
) -> bytes:
    """Return a NoticeResponse. A NUL in a text is left out."""
    return message(b"N", _fields(severity, sqlstate, said, detail, hint))


def _fields(
    severity: Severity,
    sqlstate: str,
    said: str,
    detail: str | None,
    hint: str | None,
    position: str | None = None,
) -> bytes:
    # `S` is the severity in the server's language, `V` the one that programs compare.
    fields = {"S": severity, "V": severity, "C": sqlstate, "M": said, "D": detail, "H": hint}
    fields["P"] = position
    return error_fields({code: each for code, each in fields.items() if each is not None})


def error_fields(fields: Mapping[str, str]) -> bytes:
    """Return the payload of an ErrorResponse or a NoticeResponse with these fields."""
    parts = [
        f"{code}{each}".replace("\0", "").encode("utf-8", "replace") + b"\0"
        for code, each in fields.items()
    ]
    return b"".join(parts) + b"\0"


def ready(status: Status) -> bytes:
    """Return a ReadyForQuery."""
    return message(b"Z", status)


def command_complete(tag: bytes) -> bytes:
    return message(b"C", text(tag))


def parameter_status(name: bytes, setting: bytes) -> bytes:
    return message(b"S", text(name), text(setting))


def backend_key_data(process: int, secret: bytes) -> bytes:
    """Return a BackendKeyData. `secret` has 4 bytes in version 3.0, up to 256 in 3.2."""
    return message(b"K", int32(process), secret)


def negotiate_version(version: int, unknown: Sequence[bytes]) -> bytes:
    """Return a NegotiateProtocolVersion: the version that is spoken, and the options that are
    not."""
    return message(b"v", int32(version), int32(len(unknown)), *map(text, unknown))


def data_row(values: Sequence[bytes | None]) -> bytes:
    parts = [int32(NULL) if each is None else int32(len(each)) + each for each in values]
    return message(b"D", int16(len(parts)), *parts)


class Column(NamedTuple):
    """A column of a result."""

    name: bytes
    relation: int = 0
    """The oid of the relation that it is a column of; 0 if it is computed."""
    number: int = 0
    """Its number in that relation, from 1; 0 if it is computed. System columns count down from
    65,535."""
    type: int = 25
    """The oid of its type."""
    size: int = 0xFFFF
    """The bytes of its type; 65,535 and 65,534 for types without a fixed size."""
    modifier: int = 0xFFFFFFFF
    format: int = 0
    """0 for text, 1 for binary."""


def row_description(columns: Sequence[Column]) -> bytes:
    parts = [
        text(each.name)
        + int32(each.relation)
        + int16(each.number)
        + int32(each.type)
        + int16(each.size)
        + int32(each.modifier)
        + int16(each.format)
        for each in columns
    ]
    return message(b"T", int16(len(parts)), *parts)


# ------------------------------------------------------------------------- what comes from a server


class ServerError(NamedTuple):
    """An ErrorResponse or a NoticeResponse. `fields` has every field by its code."""

    fields: dict[str, str]

    @property
    def sqlstate(self) -> str:
        return self.fields.get("C", "XX000")

    @property
    def severity(self) -> str:
        return self.fields.get("V") or self.fields.get("S", "ERROR")

    @property
    def message(self) -> str:
        return self.fields.get("M", "")


def parse_error(frame: Frame) -> ServerError:
    """Return the fields of an ErrorResponse or a NoticeResponse. Raises `MessageFault`, as all
    functions below do."""
    reader = PayloadReader("ErrorResponse", frame.payload)
    fields: dict[str, str] = {}
    while (code := reader.byte()) != b"\0":
        # Before the login, a server's messages may be in any encoding.
        fields[chr(code[0])] = reader.text().decode("utf-8", "replace")
    reader.end()
    return ServerError(fields)


def rows(frame: Frame) -> Iterator[tuple[bytes | None, ...]]:
    """Yield the values of each DataRow of a run."""
    raw, at = frame.raw, 0
    for _ in range(frame.messages):
        end = at + 1 + int.from_bytes(raw[at + 1 : at + 5], "big")
        reader = PayloadReader("DataRow", raw[at + 5 : end])
        values = tuple(reader.value() for _ in range(reader.int16()))
        reader.end()
        yield values
        at = end


def parse_row_description(frame: Frame) -> tuple[Column, ...]:
    reader = PayloadReader("RowDescription", frame.payload)
    columns = tuple(_column(reader) for _ in range(reader.int16()))
    reader.end()
    return columns


def _column(reader: PayloadReader) -> Column:
    return Column(
        reader.text(),
        reader.int32(),
        reader.int16(),
        reader.int32(),
        reader.int16(),
        reader.int32(),
        reader.int16(),
    )


def parse_parameter_description(frame: Frame) -> tuple[int, ...]:
    """Return the oids of the types of a prepared statement's parameters."""
    reader = PayloadReader("ParameterDescription", frame.payload)
    oids = tuple(reader.int32() for _ in range(reader.int16()))
    reader.end()
    return oids


def parse_parameter_status(frame: Frame) -> tuple[bytes, bytes]:
    """Return the name and the value of a server's parameter."""
    reader = PayloadReader("ParameterStatus", frame.payload)
    name, setting = reader.text(), reader.text()
    reader.end()
    return name, setting


class BackendKey(NamedTuple):
    """What a CancelRequest names: the process that serves a connection, and its secret."""

    process: int
    secret: bytes


def parse_backend_key(frame: Frame) -> BackendKey:
    reader = PayloadReader("BackendKeyData", frame.payload)
    process, secret = reader.int32(), reader.rest()
    if not 4 <= len(secret) <= MOST_KEY_BYTES:
        raise MessageFault(f"a message BackendKeyData has a key of {len(secret)} bytes")
    return BackendKey(process, secret)


MOST_KEY_BYTES = 256


def parse_ready(frame: Frame) -> Status:
    """Return the status of the transaction in a ReadyForQuery."""
    payload = frame.payload
    for status in _STATUSES:
        if payload == status:
            return status
    raise MessageFault("a message ReadyForQuery has no known status of the transaction")


_STATUSES: tuple[Status, ...] = (b"I", b"T", b"E")


def parse_command_complete(frame: Frame) -> bytes:
    """Return the tag, such as `SELECT 5`."""
    reader = PayloadReader("CommandComplete", frame.payload)
    tag = reader.text()
    reader.end()
    return tag


def parse_negotiate_version(frame: Frame) -> tuple[int, tuple[bytes, ...]]:
    """Return the version that the server speaks, and the options that it doesn't know."""
    reader = PayloadReader("NegotiateProtocolVersion", frame.payload)
    version, count = reader.int32(), reader.int32()
    if count > reader.left:
        reader.fault("is cut off")
    unknown = tuple(reader.text() for _ in range(count))
    reader.end()
    return version, unknown


class Authentication(NamedTuple):
    """A request of a server in the course of a login."""

    method: int
    """0 if the login is complete, 10 to 12 for SASL; others are not spoken here."""
    data: bytes


def parse_authentication(frame: Frame) -> Authentication:
    reader = PayloadReader("Authentication", frame.payload)
    return Authentication(reader.int32(), reader.rest())


def parse_mechanisms(data: bytes) -> tuple[bytes, ...]:
    """Return the names of the mechanisms of SASL that a server offers."""
    reader = PayloadReader("AuthenticationSASL", data)
    mechanisms: list[bytes] = []
    while name := reader.text():
        mechanisms.append(name)
    reader.end()
    return tuple(mechanisms)
