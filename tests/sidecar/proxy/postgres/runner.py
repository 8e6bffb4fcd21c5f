"""Tries a way to read the payroll through an address, and says what came back.

The same runs against the server, where most ways must find something, and against a sidecar, where
none may.
"""

from __future__ import annotations

import base64
import contextlib
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.sidecar.proxy.postgres import plays
from tests.sidecar.proxy.postgres.ways import Way
from tests.support import postgres_wire as wire
from tests.support.postgres_source import Source

_WORD = b"SECRET_7f3a"
SLOWER = 0.12
"""The seconds by which a true guess is slower than a false one, if time tells it."""
_SALARIES = b"|".join(
    re.escape(struct.pack("!ii", 4, 734_100_000 + number)) for number in (1, 2, 3, 7)
)
VALUES = re.compile(
    b"|".join(
        [
            rb"(?i:secret_7f3a)",
            rb"(?i:a3f7_terces)",
            rb"(?i:" + _WORD.hex().encode() + rb")",
            # A base64 of the word depends on where in its group of three bytes it begins.
            *(base64.b64encode(b"xx"[:skip] + _WORD)[skip + 1 : -3] for skip in range(3)),
            rb"(?<!\d)7341(?:00|01)\d{3}(?!\d)",
            rb"(?<!\d)1873-04-05(?!\d)",
            _SALARIES,
            re.escape(struct.pack("!ii", 4, -46_291)),
        ]
    )
)
"""The values of the payroll as text, in binary, and as they are often encoded."""
COLUMNS = re.compile(rb"q(?:payee|salary|since|terms|seal|words)")
_PASSING = re.compile(
    rb"(?i)time[=:]\s?[\d.]+(?:\.\.[\d.]+)?(?: ms)?|(?:planning|execution) time: [\d.]+"
    # The id of the event that a denial by a sidecar names, too.
    rb"|\"event_id\":\"[0-9a-f-]{36}\""
)


class Mode(NamedTuple):
    """How a way is tried: by which protocol, and whether in a transaction that is open before."""

    extended: bool
    transaction: bool

    def __str__(self) -> str:
        place = "in a transaction" if self.transaction else "alone"
        return f"{'extended' if self.extended else 'simple'}, {place}"


MODES = tuple(Mode(extended, inside) for extended in (False, True) for inside in (False, True))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a session received from its first text on, and what it sent."""

    received: bytes
    sent: bytes
    messages: tuple[wire.Message, ...]
    seconds: float
    refused: dict[str, str] | None = None
    """The fields of the error if the login was refused."""

    def values(self) -> set[bytes]:
        """Return the values of the payroll in what came back, but for those that were sent."""
        return _found(VALUES, self)

    def columns(self) -> set[bytes]:
        """Return the names of its columns in what came back, but for those that were sent."""
        return _found(COLUMNS, self)

    def errors(self) -> list[dict[str, str]]:
        """Return the fields of all errors."""
        refused = [] if self.refused is None else [self.refused]
        return refused + wire.errors(self.messages)

    def looks_like(self, other: Seen, guesses: tuple[str, ...]) -> bool:
        """Return whether both received the same, but for the guess and for times in plans."""
        return self._bare(guesses) == other._bare(guesses)

    def _bare(self, guesses: tuple[str, ...]) -> list[tuple[str, bytes]]:
        return [(kind, _bare(kind, body, guesses)) for kind, body in self.messages]


class Tried(NamedTuple):
    """A way that was tried: with each guess, or once."""

    way: Way
    mode: Mode
    seen: list[Seen]

    def differs(self) -> bool:
        """Return whether a true guess looks different from a false one."""
        true, false = self.seen
        return not true.looks_like(false, self.way.guess)

    def slower(self) -> bool:
        """Return whether a true guess takes longer."""
        true, false = self.seen
        return true.seconds > false.seconds + SLOWER

    def shows(self) -> bool:
        """Return whether what the way is said to show was seen."""
        if self.way.shows == "bit":
            return self.differs()
        if self.way.shows == "time":
            return self.slower()
        if self.way.shows == "value":
            return any(seen.values() for seen in self.seen)
        if self.way.shows == "column":
            return any(seen.columns() for seen in self.seen)
        pattern = re.compile(self.way.shows.encode())
        return any(pattern.search(_texts(seen)) for seen in self.seen)

    def leaks(self) -> list[str]:
        """Return all that must not come back if the payroll is denied: values and columns of it,
        and a difference between guesses. What a plan or a message of another kind shows, `shows`
        tells."""
        found = {
            each.decode("latin-1") for seen in self.seen for each in seen.values() | seen.columns()
        }
        if self.way.guess and self.differs():
            found.add("a true guess looks different")
        return sorted(found)


def modes(way: Way) -> Iterator[Mode]:
    """Yield how a way can be tried."""
    for mode in MODES:
        protocol = "extended" if mode.extended else "simple"
        place = "only" if mode.transaction else "never"
        if way.protocol in ("both", protocol) and way.transaction in ("both", place):
            yield mode


def applies(way: Way, source: Source) -> bool:
    """Return whether the server has what the way needs."""
    return way.since <= source.version <= way.until and way.needs <= source.features


def prepare(ways: list[Way], source: Source) -> None:
    """Run the preparations of all ways that apply."""
    for way in ways:
        if way.setup and applies(way, source):
            source.execute(way.setup)


def tried(way: Way, mode: Mode, source: Source, address: wire.Address) -> Tried:
    """Try a way through an address: the server's own, or a sidecar's in front of it."""
    found = []
    for guess in way.guess or ("",):
        found.append(_once(way, mode, way.texts(guess, source.login.port), address))
        if way.after:
            source.execute(way.after)
    return Tried(way, mode, found)


def _once(way: Way, mode: Mode, texts: list[str], address: wire.Address) -> Seen:
    sent = "\n".join((*texts, *way.values)).encode()
    start = time.monotonic()
    try:
        connection = wire.Connection(address, dict(way.startup))
    except wire.Refused as refused:
        return Seen(b"", sent, (), 0.0, refused.fields)
    with connection:
        before = len(connection.received)
        messages: list[wire.Message] = []
        # A play may close its own connection, or have it closed.
        with contextlib.suppress(wire.Closed, ConnectionError):
            if mode.transaction:
                messages += connection.simple("BEGIN")
            start = time.monotonic()
            for answer in _answers(way, mode, texts, connection):
                messages += answer
        seconds = time.monotonic() - start
        with contextlib.suppress(wire.Closed, OSError):
            if mode.transaction:
                messages += connection.simple("ROLLBACK")
        # What the server reports at the start may hold a parameter that was sent.
        return Seen(bytes(connection.received[before:]), sent, tuple(messages), seconds)


def _answers(
    way: Way, mode: Mode, texts: list[str], connection: wire.Connection
) -> Iterator[list[wire.Message]]:
    if way.play:
        yield from plays.PLAYS[way.play](connection, texts)
        return
    for number, text in enumerate(texts, 1):
        if mode.extended:
            last = number == len(texts)
            yield connection.extended(text, [each.encode() for each in way.values] if last else [])
        else:
            yield connection.simple(text)


def _bare(kind: str, body: bytes, guesses: tuple[str, ...]) -> bytes:
    # Before the guess is taken out: it may be a digit.
    body = _PASSING.sub(b"", body)
    for guess in guesses:
        body = body.replace(guess.encode(), b"?")
    if kind in "EN":
        # The position of an error depends on the length of the guess.
        body = re.sub(rb"\0P\d+\0", b"\0", body)
    return body


def _found(pattern: re.Pattern[bytes], seen: Seen) -> set[bytes]:
    # A name that is not quoted comes back in small letters.
    sent = {each.lower() for each in pattern.findall(seen.sent)}
    return {each for each in pattern.findall(seen.received) if each.lower() not in sent}


def _texts(seen: Seen) -> bytes:
    return b"\n".join(message.body for message in seen.messages)
