"""The messages that a client sends: what an agent sends after its startup message is parsed, and
what the sidecar sends to a server is built.

Names and texts stay bytes: which encoding they are in is the reader's question.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from sidecar.postgres.frames import Frame, ProtocolFault
from sidecar.postgres.payload import PayloadReader, int16, int32, message, text, value

MOST_PARAMETERS = 1_000
"""The most parameters of a statement."""
_MOST_RESULTS = 1_664
"""The most columns of a result, as PostgreSQL has it."""


class Query(NamedTuple):
    """Statements of the simple protocol."""

    text: bytes


class Parse(NamedTuple):
    """Prepares a statement under a name; without one, until the next Parse."""

    name: bytes
    text: bytes
    types: tuple[int, ...]
    """The oids of the parameters' types; 0 lets the server choose."""


class Bind(NamedTuple):
    """Makes a portal of a prepared statement and its parameters."""

    portal: bytes
    statement: bytes
    formats: tuple[int, ...]
    """0 for text, 1 for binary: none (all are text), one for all, or one for each parameter."""
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


class Describe(NamedTuple):
    """Asks which columns a prepared statement (`S`) or a portal (`P`) has."""

    kind: bytes
    name: bytes


class Execute(NamedTuple):
    """Runs a portal, for at most `rows` rows; 0 for all."""

    portal: bytes
    rows: int


class Close(NamedTuple):
    """Drops a prepared statement (`S`) or a portal (`P`)."""

    kind: bytes
    name: bytes


class Flush(NamedTuple):
    """Asks for the answers so far."""


class Sync(NamedTuple):
    """Ends a series of messages, and the implicit transaction."""


class Terminate(NamedTuple):
    """Ends the connection."""


class FunctionCall(NamedTuple):
    """Calls a function by its oid. Its arguments are not read: nothing passes it on."""

    oid: int


class CopyData(NamedTuple):
    """A part of the data of a COPY."""

    data: bytes


class CopyDone(NamedTuple):
    """Ends the data of a COPY."""


class CopyFail(NamedTuple):
    """Breaks off a COPY."""

    reason: bytes


class Password(NamedTuple):
    """The answer to a request for a password."""

    password: bytes


Message = (
    Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Flush
    | Sync
    | Terminate
    | FunctionCall
    | CopyData
    | CopyDone
    | CopyFail
    | Password
)


def parse(frame: Frame) -> Message:
    """Return the message in a frame that an agent sent. Raises `MessageFault` if its payload is
    malformed, `ProtocolFault` for a kind that no client sends."""
    known = _PARSERS.get(frame.kind)
    if known is None:
        raise ProtocolFault(f"a client sends no message of kind 0x{frame.kind.hex()}")
    name, parser = known
    reader = PayloadReader(name, frame.payload)
    parsed = parser(reader)
    reader.end()
    return parsed


def _query(reader: PayloadReader) -> Query:
    return Query(reader.text())


def _parse(reader: PayloadReader) -> Parse:
    name, sql = reader.text(), reader.text()
    count = reader.count(MOST_PARAMETERS, "parameters")
    return Parse(name, sql, tuple(reader.int32() for _ in range(count)))


def _bind(reader: PayloadReader) -> Bind:
    portal, statement = reader.text(), reader.text()
    formats = _formats(reader, MOST_PARAMETERS, "formats of parameters")
    count = reader.count(MOST_PARAMETERS, "parameters")
    if len(formats) not in (0, 1, count):
        reader.fault(f"has {len(formats)} formats for {count} parameters")
    values = tuple(reader.value() for _ in range(count))
    return Bind(portal, statement, formats, values, _formats(reader, _MOST_RESULTS, "formats"))


def _formats(reader: PayloadReader, most: int, what: str) -> tuple[int, ...]:
    formats = tuple(reader.int16() for _ in range(reader.count(most, what)))
    if any(each > 1 for each in formats):
        reader.fault("has a format that is neither 0 (text) nor 1 (binary)")
    return formats


def _target(reader: PayloadReader) -> tuple[bytes, bytes]:
    kind = reader.byte()
    if kind not in (b"S", b"P"):
        reader.fault("names neither a statement (`S`) nor a portal (`P`)")
    return kind, reader.text()


def _execute(reader: PayloadReader) -> Execute:
    portal, rows = reader.text(), reader.int32()
    # PostgreSQL reads a signed number, and takes one below 1 to mean all rows.
    return Execute(portal, rows if rows < 1 << 31 else 0)


def _function_call(reader: PayloadReader) -> FunctionCall:
    oid = reader.int32()
    reader.rest()
    return FunctionCall(oid)


_PARSERS: Mapping[bytes, tuple[str, Callable[[PayloadReader], Message]]] = {
    b"Q": ("Query", _query),
    b"P": ("Parse", _parse),
    b"B": ("Bind", _bind),
    b"D": ("Describe", lambda reader: Describe(*_target(reader))),
    b"E": ("Execute", _execute),
    b"C": ("Close", lambda reader: Close(*_target(reader))),
    b"H": ("Flush", lambda _: Flush()),
    b"S": ("Sync", lambda _: Sync()),
    b"X": ("Terminate", lambda _: Terminate()),
    b"F": ("FunctionCall", _function_call),
    b"d": ("CopyData", lambda reader: CopyData(reader.rest())),
    b"c": ("CopyDone", lambda _: CopyDone()),
    b"f": ("CopyFail", lambda reader: CopyFail(reader.text())),
    b"p": ("PasswordMessage", lambda reader: Password(reader.text())),
}

# --------------------------------------------------------------------------- what goes to a server

SYNC = message(b"S")
FLUSH = message(b"H")
TERMINATE = message(b"X")


def query(sql: bytes) -> bytes:
    """Return a Query. This function and those below raise `ValueError` for a NUL in a text."""
    return message(b"Q", text(sql))


def prepare(name: bytes, sql: bytes, types: Sequence[int] = ()) -> bytes:
    """Return a Parse."""
    oids = [int32(each) for each in types]
    return message(b"P", text(name), text(sql), int16(len(oids)), *oids)


def bind(
    portal: bytes,
    statement: bytes,
    values: Sequence[bytes | None] = (),
    formats: Sequence[int] = (),
    result_formats: Sequence[int] = (),
) -> bytes:
    """Return a Bind."""
    return message(
        b"B",
        text(portal),
        text(statement),
        _numbers(formats),
        int16(len(values)),
        *(value(each) for each in values),
        _numbers(result_formats),
    )


def describe(kind: Literal[b"S", b"P"], name: bytes) -> bytes:
    return message(b"D", kind, text(name))


def execute(portal: bytes, rows: int = 0) -> bytes:
    """Return an Execute, for at most `rows` rows; 0 for all."""
    return message(b"E", text(portal), int32(rows))


def close(kind: Literal[b"S", b"P"], name: bytes) -> bytes:
    return message(b"C", kind, text(name))


def copy_fail(reason: bytes) -> bytes:
    return message(b"f", text(reason))


def sasl_initial(mechanism: bytes, data: bytes) -> bytes:
    """Return a SASLInitialResponse."""
    return message(b"p", text(mechanism), int32(len(data)), data)


def sasl_response(data: bytes) -> bytes:
    return message(b"p", data)


def _numbers(numbers: Sequence[int]) -> bytes:
    return int16(len(numbers)) + b"".join(map(int16, numbers))
