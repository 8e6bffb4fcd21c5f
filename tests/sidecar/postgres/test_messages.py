"""Payloads: each is read as it was written, and in no other way."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Callable, Iterator

import pytest

from sidecar.postgres import backend, frontend
from sidecar.postgres.backend import Authentication, BackendKey, Column, ServerError
from sidecar.postgres.frames import Frame, MessageFault, ProtocolFault
from sidecar.postgres.frontend import (
    Bind,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    Execute,
    Flush,
    FunctionCall,
    Message,
    Parse,
    Password,
    Query,
    Sync,
    Terminate,
)
from sidecar.postgres.payload import int32, message, text
from tests.support.properties import chance

FROM_AGENT: list[tuple[bytes, Message]] = [
    (frontend.query(b"SELECT 1"), Query(b"SELECT 1")),
    (frontend.prepare(b"s", b"SELECT $1", (23, 0)), Parse(b"s", b"SELECT $1", (23, 0))),
    (
        frontend.bind(b"p", b"s", [b"1", None, b""], [1, 0, 1], [1]),
        Bind(b"p", b"s", (1, 0, 1), (b"1", None, b""), (1,)),
    ),
    (frontend.bind(b"", b""), Bind(b"", b"", (), (), ())),
    (frontend.describe(b"S", b"s"), Describe(b"S", b"s")),
    (frontend.close(b"P", b""), Close(b"P", b"")),
    (frontend.execute(b"p", 7), Execute(b"p", 7)),
    (frontend.FLUSH, Flush()),
    (frontend.SYNC, Sync()),
    (frontend.TERMINATE, Terminate()),
    (message(b"F", int32(1300), b"arguments"), FunctionCall(1300)),
    (message(b"d", b"a\0b"), CopyData(b"a\0b")),
    (message(b"c"), CopyDone()),
    (frontend.copy_fail(b"no"), CopyFail(b"no")),
    (message(b"p", text(b"secret")), Password(b"secret")),
]
OPEN_ENDED = (CopyData, FunctionCall)
"""Messages whose payload may have any length."""


def frame(raw: bytes) -> Frame:
    return Frame(raw[:1], raw)


def resized(raw: bytes, payload: bytes) -> Frame:
    return frame(message(raw[:1], payload))


@pytest.mark.parametrize(("raw", "meant"), FROM_AGENT, ids=lambda each: type(each).__name__)
def test_what_a_client_sends_is_read_as_it_is_meant(raw: bytes, meant: Message) -> None:
    assert frontend.parse(frame(raw)) == meant
    if isinstance(meant, OPEN_ENDED):
        return
    payload = raw[5:]
    with pytest.raises(MessageFault, match="1 bytes behind its last field"):
        frontend.parse(resized(raw, payload + b"\0"))
    for end in range(len(payload)):
        with pytest.raises(MessageFault, match=r"is cut off|doesn't end"):
            frontend.parse(resized(raw, payload[:end]))


def bind_of(formats: list[int], values: int, length: int = 0) -> bytes:
    numbers = struct.pack(f"!{len(formats)}H", *formats)
    return (
        b"\0\0"
        + struct.pack("!H", len(formats))
        + numbers
        + struct.pack("!H", values)
        + struct.pack("!I", length) * values
        + b"\0\0"
    )


MALFORMED = [
    (b"B", bind_of([], 1_001), "1,001 parameters, over the limit of 1,000"),
    (b"B", bind_of([], 0xFFFF), "65,535 parameters"),
    (b"B", bind_of([0, 1], 3), "2 formats for 3 parameters"),
    (b"B", bind_of([0, 1, 1], 2), "3 formats for 2 parameters"),
    (b"B", bind_of([2], 1), "neither 0"),
    (b"B", bind_of([0xFFFF], 1), "neither 0"),
    # Negative for those who read a signed number; -1 alone is NULL.
    (b"B", bind_of([], 1, 0xFFFFFFFE), "is cut off"),
    (b"B", bind_of([], 1, 0x80000000), "is cut off"),
    (b"B", bind_of([], 1, 3), "is cut off"),
    (b"P", b"\0\0" + struct.pack("!H", 1_001), "1,001 parameters"),
    (b"D", b"X\0", "neither a statement"),
    (b"C", b"\0\0", "neither a statement"),
]


@pytest.mark.parametrize(("kind", "payload", "reason"), MALFORMED, ids=map(str, range(12)))
def test_a_malformed_message_is_refused(kind: bytes, payload: bytes, reason: str) -> None:
    with pytest.raises(MessageFault, match=re.escape(reason)):
        frontend.parse(frame(message(kind, payload)))


def test_a_thousand_parameters_are_read() -> None:
    values = [b"%d" % each for each in range(1_000)]
    parsed = frontend.parse(frame(frontend.bind(b"", b"", values)))
    assert isinstance(parsed, Bind)
    assert parsed.values == tuple(values)
    # Below 1, PostgreSQL takes the number of rows to mean all.
    assert frontend.parse(frame(frontend.execute(b"", 0xFFFFFFFF))) == Execute(b"", 0)


def test_a_text_with_a_nul_is_not_sent() -> None:
    for build in (frontend.query, frontend.copy_fail, backend.command_complete):
        with pytest.raises(ValueError, match="no NUL"):
            build(b"SELECT 1\0; DROP TABLE t")


COLUMN = Column(b"name", 16_384, 3, 1043, 0xFFFF, 259, 1)
Parser = Callable[[Frame], object]
FROM_SERVER: list[tuple[bytes, Parser, object]] = [
    (
        backend.error("42501", "no", "why", "how", severity="FATAL"),
        backend.parse_error,
        ServerError({"S": "FATAL", "V": "FATAL", "C": "42501", "M": "no", "D": "why", "H": "how"}),
    ),
    (
        backend.notice("00000", "told"),
        backend.parse_error,
        ServerError({"S": "NOTICE", "V": "NOTICE", "C": "00000", "M": "told"}),
    ),
    (backend.ready(b"T"), backend.parse_ready, b"T"),
    (backend.command_complete(b"SELECT 5"), backend.parse_command_complete, b"SELECT 5"),
    (
        backend.parameter_status(b"TimeZone", b"UTC"),
        backend.parse_parameter_status,
        (b"TimeZone", b"UTC"),
    ),
    (
        backend.negotiate_version(3 << 16, [b"_pq_.x", b"_pq_.y"]),
        backend.parse_negotiate_version,
        (3 << 16, (b"_pq_.x", b"_pq_.y")),
    ),
    (
        backend.row_description([COLUMN, Column(b"")]),
        backend.parse_row_description,
        (COLUMN, Column(b"")),
    ),
    (
        message(b"t", struct.pack("!HII", 2, 23, 25)),
        backend.parse_parameter_description,
        (23, 25),
    ),
    (
        backend.data_row([b"1", None, b""]),
        lambda each: list(backend.rows(each)),
        [(b"1", None, b"")],
    ),
]


@pytest.mark.parametrize(("raw", "parser", "meant"), FROM_SERVER, ids=map(str, range(9)))
def test_what_a_server_sends_is_read_as_it_is_meant(
    raw: bytes, parser: Parser, meant: object
) -> None:
    assert parser(frame(raw)) == meant
    payload = raw[5:]
    with pytest.raises(MessageFault, match=r"behind its last field|no known status"):
        parser(resized(raw, payload + b"\0"))
    for end in range(len(payload)):
        with pytest.raises(MessageFault, match=r"is cut off|doesn't end|no known status"):
            parser(resized(raw, payload[:end]))


@pytest.mark.parametrize("size", [4, 32, 256])
def test_a_key_has_4_to_256_bytes(size: int) -> None:
    key = BackendKey(7, b"k" * size)
    raw = backend.backend_key_data(*key)
    assert backend.parse_backend_key(frame(raw)) == key
    with pytest.raises(MessageFault, match="a key of"):
        backend.parse_backend_key(frame(backend.backend_key_data(7, b"k" * 257)))
    with pytest.raises(MessageFault, match="a key of"):
        backend.parse_backend_key(frame(backend.backend_key_data(7, b"k" * 3)))


def test_the_requests_of_a_login_are_read() -> None:
    offer = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"
    parsed = backend.parse_authentication(frame(message(b"R", int32(10), offer)))
    assert parsed == Authentication(10, offer)
    names = (b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256")
    assert backend.parse_mechanisms(offer) == names
    for wrong in (offer[:-1], offer + b"x", b""):
        with pytest.raises(MessageFault):
            backend.parse_mechanisms(wrong)


def test_an_error_holds_any_text() -> None:
    told = backend.parse_error(frame(backend.error("42501", "a\0b\ud800", "é")))
    assert (told.message, told.fields["D"]) == ("ab?", "é")


def mutations(raw: bytes, name: str, count: int) -> Iterator[bytes]:
    random = chance(name)
    for _ in range(count):
        payload = bytearray(raw[5:])
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(payload) + 1)
            payload[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
        yield message(raw[:1], bytes(payload))


def test_a_mutated_message_is_read_or_refused() -> None:
    for raw, _ in FROM_AGENT:
        for mutated in mutations(raw, "agent", 40):
            with contextlib.suppress(ProtocolFault):
                frontend.parse(frame(mutated))
    for raw, parser, _ in FROM_SERVER:
        for mutated in mutations(raw, "server", 40):
            with contextlib.suppress(ProtocolFault):
                parser(frame(mutated))
    with pytest.raises(ProtocolFault, match="no message of kind 0x5a"):
        frontend.parse(frame(backend.ready(b"I")))
