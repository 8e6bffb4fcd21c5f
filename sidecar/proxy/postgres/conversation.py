"""Talks to the server on behalf of one session: sends steps, and collects the answer to each.

A step is one or more messages of the extended protocol whose answer ends with a frame of a known
type. Several steps travel in one round trip. After an error the server skips what follows until
`Sync` (PostgreSQL, Message Flow, Extended Query), so the steps behind it have no answer.

Knows which frames belong together. Knows no statement and no decision.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from sidecar.postgres import frontend
from sidecar.postgres.backend import Status, parse_error, parse_ready
from sidecar.postgres.connection import ConnectionLost
from sidecar.postgres.frames import Frame, ProtocolFault
from sidecar.postgres.server import ServerConnection

log = logging.getLogger(__name__)

ERROR, NOTICE, PARAMETER, NOTIFICATION, READY = b"E", b"N", b"S", b"A", b"Z"
ROW, COMPLETE, SUSPENDED, EMPTY = b"D", b"C", b"s", b"I"
DATA = (ROW, b"d")
"""What holds rows: DataRow, and CopyData, which no row limit divides into batches."""
PARSED, BOUND, CLOSED = b"1", b"2", b"3"
DESCRIBED = (b"T", b"n")
EXECUTED = (COMPLETE, SUSPENDED, EMPTY)


class Step(NamedTuple):
    """Messages to the server, and the types of the frames that may end its answer. `times` is how
    many such frames there are, of which the last one ends it; frames of the type `unheard` are no
    part of the answer."""

    data: bytes
    ends: tuple[bytes, ...]
    times: int = 1
    unheard: bytes = b""


def prepare_step(name: bytes, text: str) -> Step:
    """Return the step that prepares a statement."""
    return Step(frontend.prepare(name, text.encode()), (PARSED,))


RESERVED = "sluice_"
"""What the names of our own statements, portals and savepoints begin with. No statement of the
agent may use such a name."""


class OwnStatements:
    """The statements of ours that a session needs, by name. They are prepared once; but where code
    of the database may have run, which can replace any prepared statement by one of its own, each
    is prepared anew right before it runs, with nothing in between."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = {(RESERVED + name).encode(): text.encode() for name, text in texts.items()}
        self._prepared = False

    def prepare(self) -> list[Step]:
        """Return the steps that prepare all of them."""
        self._prepared = True
        return [Step(frontend.prepare(*each), (PARSED,)) for each in self._texts.items()]

    def distrust(self) -> None:
        """Prepare each statement anew from now on: it may be gone, or another one."""
        self._prepared = False

    def run(self, name: str, *values: str) -> Step:
        """Return the step that runs a statement, in a portal of the same name."""
        own = (RESERVED + name).encode()
        encoded = [each.encode() for each in values]
        # Closed at once: a portal lasts until the transaction ends, and the next look needs the
        # name.
        data = frontend.bind(own, own, encoded) + frontend.execute(own) + frontend.close(b"P", own)
        if self._prepared:
            return Step(data, (CLOSED,))
        again = frontend.close(b"S", own) + frontend.prepare(own, self._texts[own])
        return Step(again + data, (CLOSED,), 2)


class TooMuchHeld(Exception):
    """the rows of a batch take more bytes than may be held"""


class Outcome(NamedTuple):
    """The answers to the steps of one round trip, as far as the server went; and the error that
    ended it, None if there was none."""

    answers: list[list[Frame]]
    error: Frame | None


class ServerLost(ConnectionLost):
    """the server has ended the session, or does not answer. `said` is its last error, None if it
    has said nothing."""

    def __init__(self, reason: str, said: Frame | None = None) -> None:
        super().__init__(reason)
        self.said = said


class Conversation:
    """The exchange of one session with the server, which may take `seconds` to answer."""

    def __init__(
        self,
        server: ServerConnection,
        cancel: Callable[[], Awaitable[None]],
        seconds: float,
    ) -> None:
        self.server = server
        self._seconds = seconds
        self.cancel = cancel
        """Asks the server to cancel the statement under way."""
        self.asides: list[Frame] = []
        """The notices and parameters that the server sent since they were last taken."""
        self._waits = False
        """True while the server has something to answer."""
        self._leaving: asyncio.Task[None] | None = None
        self.state: Status = b"I"
        """The state of the transaction at the last end of a pipeline: `I`, `T` or `E`."""

    async def run(self, steps: Sequence[Step], hold: int | None = None) -> Outcome:
        """Send the steps in one round trip, and return the answers. After an error, the pipeline
        is ended too, so that the server reads on. With `hold`, raises `TooMuchHeld` as soon as the
        rows in the answers take more bytes; then the caller has to `abandon` the rest. Raises
        `ServerLost`."""
        self.server.write(b"".join([step.data for step in steps]) + frontend.FLUSH)
        async with self._in_time():
            return await self._answers(steps, hold)

    async def _answers(self, steps: Sequence[Step], hold: int | None) -> Outcome:
        answers: list[list[Frame]] = []
        held = 0
        for step in steps:
            frames: list[Frame] = []
            answers.append(frames)
            left = step.times
            while left:
                frame = await self._next()
                if frame.kind == ERROR:
                    self.server.write(frontend.SYNC)
                    await self._to_ready()
                    return Outcome(answers, frame)
                if frame.kind != step.unheard:
                    frames.append(frame)
                if frame.kind in step.ends:
                    left -= 1
                elif frame.kind in DATA and hold is not None:
                    held += len(frame.raw)
                    if held > hold:
                        raise TooMuchHeld
        return Outcome(answers, None)

    def send(self, data: bytes) -> None:
        """Send messages of one step, whose answer the caller reads with `next`."""
        self.server.write(data + frontend.FLUSH)

    async def sync(self) -> Frame | None:
        """End the pipeline, and note the state of the transaction. Returns the error that this
        caused; None if there was none."""
        self.server.write(frontend.SYNC)
        async with self._in_time():
            return await self._to_ready()

    def leave(self, _lost: object) -> None:
        """End the session with the server at once, since the agent is gone: cancel what runs, and
        end the wait for the server with `ConnectionLost`."""
        if self._waits:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        else:
            self.server.abort()

    async def _leave(self) -> None:
        try:
            await self.cancel()
        finally:
            self.server.abort()

    def recovered(self) -> None:
        """Note that the transaction goes on after an error, from a savepoint."""
        self.state = b"T"

    async def abandon(self) -> None:
        """Cancel the statement under way, and drop the rest of its answer."""
        self.server.write(frontend.SYNC)
        await self.cancel()
        async with self._in_time():
            await self._to_ready()

    def take_asides(self) -> list[Frame]:
        """Return the notices and parameters that came since the last call, in order."""
        asides, self.asides = self.asides, []
        return asides

    async def _to_ready(self) -> Frame | None:
        error = None
        while True:
            frame = await self._next()
            if frame.kind == ERROR:
                error = frame
            elif frame.kind == READY:
                self.state = parse_ready(frame)
                return error

    async def next(self) -> Frame:
        """Return the next frame of an answer. Raises `ServerLost`."""
        async with self._in_time():
            return await self._next()

    async def end(self) -> None:
        """Raise `ServerLost` with what a server has said that has ended the session."""
        while True:
            await self.next()

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Give the server up if the `with` block takes too long: it is frozen, or out of reach. A
        statement that takes long is ended by the server itself before."""
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            self.server.abort()
            raise ServerLost("the server does not answer in time") from None

    async def _next(self) -> Frame:
        while True:
            self._waits = True
            try:
                frame = await self.server.read()
            except ConnectionLost:
                raise ServerLost("the server has ended the connection") from None
            except ProtocolFault as fault:
                # The agent isn't told more: the length of a row may be the one of a row that was
                # not decided.
                log.warning(
                    "a session is ended, since the server's answer can't be read: %s", fault
                )
                raise ServerLost(
                    "the server's answer breaks the protocol, or has a row that is longer than "
                    "`result.hold`"
                ) from None
            finally:
                self._waits = False
            if frame.kind in (NOTICE, PARAMETER):
                self.asides.append(frame)
            elif frame.kind == ERROR and parse_error(frame).severity in ("FATAL", "PANIC"):
                raise ServerLost("the server has ended the session", frame)
            elif frame.kind != NOTIFICATION:  # the agent can't listen to anything
                return frame
