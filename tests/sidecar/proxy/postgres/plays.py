"""Sends what only the protocol can say: pipelines, portals, wrong lengths, cancels.

Each function takes a session and the texts of a way, and yields the answers.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator

from tests.support import postgres_wire as wire
from tests.support.postgres_wire import Connection, Message

Play = Callable[[Connection, list[str]], Iterator[list[Message]]]
Answers = Iterator[list[Message]]
END = "ZE"


def whole(text: str, *, portal: str = "") -> bytes:
    """Return the messages of one statement, without Sync."""
    return (
        wire.parse(text)
        + wire.bind(portal=portal)
        + wire.describe("P", portal)
        + wire.execute(portal)
    )


def describe_cursor(connection: Connection, texts: list[str]) -> Answers:
    """psycopg describes its SQL cursor as a portal."""
    yield connection.simple(texts[0])
    yield sent(connection, wire.describe("P", "c") + wire.sync())


def execute_cursor(connection: Connection, texts: list[str]) -> Answers:
    yield connection.simple(texts[0])
    yield sent(connection, wire.execute("c", 5) + wire.execute("c", 0) + wire.sync())


def prepared_by_protocol(connection: Connection, texts: list[str]) -> Answers:
    named = "SELECT * FROM secret.payroll"
    yield sent(connection, wire.parse(named, "named") + wire.sync())
    yield connection.simple(texts[0])


def bind_named(connection: Connection, texts: list[str]) -> Answers:
    yield connection.simple(texts[0])
    yield sent(connection, wire.bind(name="named") + wire.execute() + wire.sync())


def describe_named(connection: Connection, texts: list[str]) -> Answers:
    yield connection.simple(texts[0])
    yield sent(connection, wire.describe("S", "named") + wire.sync())


def portal_in_parts(connection: Connection, texts: list[str]) -> Answers:
    parts = wire.execute("p", 100) * 3 + wire.execute("p", 0)
    yield sent(connection, wire.parse(texts[0]) + wire.bind(portal="p") + parts + wire.sync())


def two_portals(connection: Connection, texts: list[str]) -> Answers:
    opened = [wire.parse(text) + wire.bind(portal=f"p{n}") for n, text in enumerate(texts)]
    runs = wire.execute("p0", 2) + wire.execute("p1", 2) + wire.execute("p0", 2)
    yield sent(connection, b"".join(opened) + runs + wire.sync())


def describe_statement(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.parse(texts[0], "s") + wire.describe("S", "s") + wire.sync())


def describe_portal(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.parse(texts[0]) + wire.bind() + wire.describe("P") + wire.sync())


def function_call(connection: Connection, texts: list[str]) -> Answers:
    """The text is a call without arguments; its oid is asked for first."""
    name = texts[0].partition("(")[0]
    answer = connection.simple(f"SELECT '{name}'::regproc::oid")
    yield answer
    yield sent(connection, wire.function_call(_number(answer), []))


def function_call_of_query(connection: Connection, texts: list[str]) -> Answers:
    wanted = "'query_to_xml(text, bool, bool, text)'::regprocedure::oid"
    answer = connection.simple(f"SELECT {wanted}")
    yield answer
    arguments = [texts[0].encode(), b"t", b"f", b""]
    yield sent(connection, wire.function_call(_number(answer), arguments))


def pipeline(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, b"".join(map(whole, texts)) + wire.sync())


def pipeline_of_syncs(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(b"".join(whole(text) + wire.sync() for text in texts))
    for _ in texts:
        yield connection.messages()


def query_without_sync(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(whole(texts[0]) + wire.query(texts[1]) + wire.sync())
    yield connection.messages()
    yield connection.messages()


def flushed(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(whole(texts[0]) + wire.flush())
    yield connection.messages("CE")
    yield sent(connection, wire.sync())


def flushed_after_parse(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(wire.parse(texts[0]) + wire.describe("S") + wire.flush())
    yield connection.messages("TE")
    yield sent(connection, wire.sync())


def byte_by_byte(connection: Connection, texts: list[str]) -> Answers:
    for byte in whole(texts[0]) + wire.sync():
        connection.send_raw(bytes([byte]))
    yield connection.messages()


def two_queries(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(b"".join(map(wire.query, texts)))
    for _ in texts:
        yield connection.messages()


def binary(connection: Connection, texts: list[str]) -> Answers:
    yield connection.extended(texts[0], binary=True)


def binary_parameter(connection: Connection, texts: list[str]) -> Answers:
    bound = wire.bind([struct.pack("!i", 1)], formats=[1])
    yield sent(connection, wire.parse(texts[0], types=[23]) + bound + wire.execute() + wire.sync())


def typed_parameter(connection: Connection, texts: list[str]) -> Answers:
    """The parameter is declared as an `int8`, so the operator is another one."""
    bound = wire.bind([b"1"])
    yield sent(connection, wire.parse(texts[0], types=[20]) + bound + wire.execute() + wire.sync())


def reparsed(connection: Connection, texts: list[str]) -> Answers:
    parses = b"".join(map(wire.parse, texts))
    yield sent(connection, parses + wire.bind() + wire.execute() + wire.sync())


def named_then_unnamed(connection: Connection, texts: list[str]) -> Answers:
    parses = wire.parse(texts[0], "a") + wire.parse(texts[1])
    yield sent(connection, parses + wire.sync())
    yield sent(connection, wire.bind(name="a") + wire.execute() + wire.sync())


def closed_and_named_again(connection: Connection, texts: list[str]) -> Answers:
    first, second = (wire.parse(text, "a") for text in texts)
    yield sent(connection, first + wire.close("S", "a") + second + wire.sync())
    yield sent(connection, wire.bind(name="a") + wire.execute() + wire.sync())


def outlives(connection: Connection, texts: list[str]) -> Answers:
    yield connection.simple("BEGIN")
    yield sent(connection, wire.parse(texts[0], "a") + wire.sync())
    yield connection.simple("ROLLBACK")
    yield sent(connection, wire.bind(name="a") + wire.execute() + wire.sync())


def bound_after_change(connection: Connection, texts: list[str]) -> Answers:
    """Another session changes the view between Parse and Bind."""
    yield sent(connection, wire.parse(texts[0], "a") + wire.sync())
    with Connection(connection.address) as other:
        yield other.simple(texts[1])
    yield sent(connection, wire.bind(name="a") + wire.execute() + wire.sync())


def reserved_name(connection: Connection, texts: list[str]) -> Answers:
    for name in ("sluice", "sluice_look", "__sluice_look", "S_1"):
        parsed = wire.parse(texts[0], name)
        yield sent(connection, parsed + wire.bind(name=name) + wire.execute() + wire.sync())


def empty_and(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, whole("") + whole(texts[0]) + wire.sync())


def huge_length(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.frame("Q", wire.text(texts[0]), 0xFFFFFFFF), end="E")


def huge_value(connection: Connection, texts: list[str]) -> Answers:
    """A value whose length wraps around to a message of its own (CVE-2024-27304)."""
    body = (
        wire.text("") * 2
        + struct.pack("!HHI", 0, 1, 0xFFFFFFF0)
        + wire.query("TABLE secret.payroll")
    )
    yield sent(connection, wire.parse(texts[0]) + wire.frame("B", body) + wire.sync())


def negative_length(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.frame("Q", wire.text(texts[0]), -5), end="E")


def short_length(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.frame("Q", wire.text(texts[0]), 3), end="E")


def hidden_in_value(connection: Connection, texts: list[str]) -> Answers:
    hidden = wire.query(texts[0])
    yield connection.extended("SELECT length($1)", [hidden.replace(b"\0", b" ")])


def zero_byte(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.frame("Q", b"\0".join(text.encode() for text in texts) + b"\0"))


def not_utf8(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.frame("Q", texts[0].encode() + b" -- \xff\xfe\0"))


def other_encoding(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.frame("Q", texts[0].encode("latin-1") + b"\0"))


def shift_jis(connection: Connection, texts: list[str]) -> Answers:
    """The second byte of the character is a backslash for a reader of bytes."""
    text = texts[0].replace("{sjis}", "\u8868").encode("shift_jis")
    yield sent(connection, wire.frame("Q", text + b"\0"))


def long_text(connection: Connection, texts: list[str]) -> Answers:
    yield sent(connection, wire.query(f"/* {'x' * 900_000} */ {texts[0]}"))


def many_parameters(connection: Connection, texts: list[str]) -> Answers:
    terms = " ".join(f"AND ${n} <> 'no'" for n in range(1, 901))
    yield connection.extended(f"{texts[0]} {terms}", [b"x"] * 900)


def cancelled(connection: Connection, texts: list[str]) -> Answers:
    """The cancel arrives while rows are on their way."""
    connection.send_raw(wire.query(texts[0]))
    threading.Timer(0.05, connection.cancel).start()
    yield connection.messages()


def cancelled_and_again(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(wire.query(texts[0]))
    time.sleep(0.1)  # The cancel must meet a statement that runs.
    connection.cancel()
    yield connection.messages()
    yield connection.simple("ROLLBACK")
    yield connection.simple(texts[1])


def cancelled_after_parse(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(wire.parse(texts[0]) + wire.flush())
    yield connection.messages("1E")
    connection.cancel()
    yield sent(connection, wire.bind() + wire.execute() + wire.sync())


def hung_up(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(wire.query(texts[0]))
    connection.close()
    yield []


def encryption_twice(connection: Connection, texts: list[str]) -> Answers:
    """An `SSLRequest` where a message is due is a wrong length."""
    yield sent(connection, struct.pack("!II", 8, wire.SSL_REQUEST) + wire.query(texts[0]), end="E")


def query_after_extended(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(whole(texts[0]) + wire.sync() + wire.query(texts[1]))
    for _ in texts:
        yield connection.messages()


def copy_both(connection: Connection, texts: list[str]) -> Answers:
    connection.send_raw(wire.query(texts[0]) + wire.frame("d", b"x") + wire.frame("c"))
    yield connection.messages()


def sent(connection: Connection, data: bytes, end: str = "Z") -> list[Message]:
    """Send bytes, and return the answer."""
    connection.send_raw(data)
    return connection.messages(end)


def _number(answer: list[Message]) -> int:
    [[value]] = wire.rows(answer)
    return int(value or 0)


PLAYS: dict[str, Play] = {
    play.__name__: play
    for play in (
        describe_cursor, execute_cursor, prepared_by_protocol, bind_named, describe_named,
        portal_in_parts, two_portals, describe_statement, describe_portal, function_call,
        function_call_of_query, pipeline, pipeline_of_syncs, query_without_sync, flushed,
        flushed_after_parse, byte_by_byte, two_queries, binary, binary_parameter,
        typed_parameter, reparsed, named_then_unnamed, closed_and_named_again, outlives,
        bound_after_change, reserved_name, empty_and, huge_length, huge_value, negative_length,
        short_length, hidden_in_value, zero_byte, not_utf8, other_encoding, shift_jis, long_text,
        many_parameters, cancelled, cancelled_and_again, cancelled_after_parse, hung_up,
        encryption_twice, query_after_extended, copy_both,
    )
}  # fmt: skip
"""The functions, by their names."""
