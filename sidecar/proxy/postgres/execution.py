"""Executes a judged portal, batch by batch: the server makes some rows, a look shows what they were
made from, and only then do they leave.

A batch holds as many rows as its share of `result.hold` is likely to take, by the width of those
before. Knows rows and batches. Knows nothing of how a relation is decided.
"""

from sidecar.postgres import frontend
from sidecar.postgres.backend import command_complete, parse_command_complete, parse_error
from sidecar.postgres.frames import Frame
from sidecar.proxy.pipeline.lineage import COMPLETED
from sidecar.proxy.postgres.conversation import (
    COMPLETE,
    ERROR,
    EXECUTED,
    SUSPENDED,
    Conversation,
    Step,
)
from sidecar.proxy.postgres.judge import Judgement
from sidecar.proxy.postgres.lookout import Lookout, Part
from sidecar.proxy.postgres.output import Output
from sidecar.proxy.postgres.registry import Portal
from sidecar.proxy.postgres.released import Released
from sidecar.settings.postgres import ResultLimits

_FIRST_ROW_BYTES = 32 * 1024
"""The width that is expected of rows before the first one is seen."""


class TooMuchReturned(Exception):
    """the statement returns more bytes than it may"""


class Execution:
    """Executes the portals of one session."""

    def __init__(
        self,
        conversation: Conversation,
        lookout: Lookout,
        output: Output,
        limits: ResultLimits,
    ) -> None:
        self._conversation = conversation
        self._lookout = lookout
        self._output = output
        self._limits = limits

    async def run(
        self, name: bytes, portal: Portal, judgement: Judgement, most: int
    ) -> Frame | None:
        """Execute the portal until it ends, or until `most` rows were released; 0 means all.
        Returns the error that ended it, which has been judged but not sent; None if there was none.
        Raises as `Lookout.run` does, and `TooMuchReturned`."""
        left = most
        while True:
            rows = self._batch(portal.released)
            if most:
                rows = min(rows, left)
            step = Step(frontend.execute(name, rows), EXECUTED)
            outcome = await self._lookout.run(
                judgement, [Part(step, "execute")], hold=self._limits.hold
            )
            await judgement.durable()
            if outcome.error is not None:
                return outcome.error
            [frames] = outcome.answers
            released = portal.released
            left -= released.count(frames)
            if released.size > self._limits.max_bytes:
                raise TooMuchReturned
            last = frames[-1]
            ends = last.kind != SUSPENDED or (most and not left)
            if last.kind == COMPLETE:
                frames[-1] = _summed(last, released.rows)
            self._output.frames([frames if ends else frames[:-1]], self._conversation.take_asides())
            await self._output.drain()
            if ends:
                if last.kind != SUSPENDED:
                    portal.end(COMPLETED)
                return None

    async def stream(self, raw: bytes, portal: Portal, judgement: Judgement) -> Frame | None:
        """Execute a portal whose reads are all decided, with the agent's message `raw`: its rows
        leave as they come. Returns and raises as `run` does."""
        self._conversation.send(raw)
        # As a rule they are on disk already.
        await judgement.durable()
        released = portal.released
        while True:
            frame = await self._conversation.next()
            if frame.kind == ERROR:
                await self._conversation.sync()
                return frame
            released.count((frame,))
            if released.size > self._limits.max_bytes:
                await self._conversation.abandon()
                raise TooMuchReturned
            self._output.frames(((frame,),), self._conversation.take_asides())
            if frame.kind in EXECUTED:
                if frame.kind != SUSPENDED:
                    portal.end(COMPLETED)
                return None
            await self._output.drain()

    def _batch(self, released: Released) -> int:
        """Return the number of rows of the next batch."""
        width = released.size // released.rows if released.rows else _FIRST_ROW_BYTES
        return max(1, min(self._limits.batch_rows, self._limits.hold // 2 // max(1, width)))


def sqlstate_of(error: Frame) -> str:
    """Return the code of a server's error."""
    return parse_error(error).sqlstate


def _summed(complete: Frame, rows: int) -> Frame:
    """Return the end of a result whose tag counts all rows: the server counts those of the last
    batch alone."""
    word, _, count = parse_command_complete(complete).rpartition(b" ")
    if word in (b"SELECT", b"FETCH") and count.isdigit():
        return Frame(COMPLETE, command_complete(b"%b %d" % (word, rows)))
    return complete
