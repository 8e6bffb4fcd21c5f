"""Talks to the server on behalf of one session: sends steps, and collects the answer to each.

A step is one or more messages of the extended protocol whose answer ends with a frame of a known
type. Several steps travel in one round trip. After an error the server skips what follows until
`Sync` (PostgreSQL, Message Flow, Extended Query), so the steps behind it have no answer.

Knows which frames belong together. Knows no statement and no decision.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from sidecar.postgres import frontend
from sidecar.postgres.backend import Status, parse_ready
from sidecar.postgres.frames import Frame
from sidecar.postgres.server import ServerConnection

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


class Conversation:
    """The exchange of one session with the server."""

    def __init__(self, server: ServerConnection, cancel: Callable[[], Awaitable[None]]) -> None:
        self.server = server
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
        `ConnectionLost`."""
        self.server.write(b"".join([step.data for step in steps]) + frontend.FLUSH)
        answers: list[list[Frame]] = []
        held = 0
        for step in steps:
            frames: list[Frame] = []
            answers.append(frames)
            left = step.times
            while left:
                frame = await self.next()
                if frame.kind == ERROR:
                    await self.sync()
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
        await self._to_ready()

    def take_asides(self) -> list[Frame]:
        """Return the notices and parameters that came since the last call, in order."""
        asides, self.asides = self.asides, []
        return asides

    async def _to_ready(self) -> Frame | None:
        error = None
        while True:
            frame = await self.next()
            if frame.kind == ERROR:
                error = frame
            elif frame.kind == READY:
                self.state = parse_ready(frame)
                return error

    async def next(self) -> Frame:
        """Return the next frame of an answer. Raises `ConnectionLost`."""
        while True:
            self._waits = True
            frame = await self.server.read()
            self._waits = False
            if frame.kind in (NOTICE, PARAMETER):
                self.asides.append(frame)
            elif frame.kind != NOTIFICATION:  # the agent can't listen to anything
                return frame
