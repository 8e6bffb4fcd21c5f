"""Sends a session's answers to its agent, in the form of the protocol that the agent's message was
in: the simple one has no answers to parse, bind and describe. Knows frames. Knows nothing of why
they are sent."""

from collections.abc import Iterable, Sequence

from sidecar.postgres.agent import AgentConnection
from sidecar.postgres.frames import Frame
from sidecar.proxy.postgres.answers import Refusal, without_context
from sidecar.proxy.postgres.conversation import BOUND, CLOSED, NOTICE, PARSED, SUSPENDED

_EXTENDED_ONLY = frozenset((PARSED, BOUND, CLOSED, SUSPENDED, b"n", b"t"))


class Output:
    """The answers to one agent, which may take up to `seconds` to accept a part of them."""

    def __init__(self, agent: AgentConnection, seconds: float) -> None:
        self._agent = agent
        self._seconds = seconds
        self.simple = False
        """True while a message of the simple protocol is answered."""

    def write(self, data: bytes) -> None:
        self._agent.write(data)

    def frames(self, answers: Iterable[Sequence[Frame]], asides: Iterable[Frame] = ()) -> None:
        """Send the server's frames, its notices and parameters first."""
        data = [without_context(each) if each.kind == NOTICE else each.raw for each in asides]
        for frames in answers:
            data += [
                each.raw for each in frames if not (self.simple and each.kind in _EXTENDED_ONLY)
            ]
        if data:
            self._agent.write(b"".join(data))

    def error(self, frame: Frame) -> None:
        """Send an error of the server."""
        self._agent.write(without_context(frame))

    def refuse(self, refusal: Refusal) -> None:
        self._agent.write(refusal.encode())

    async def drain(self) -> None:
        """Wait until the agent takes more. Raises `ConnectionLost`, and `TimeoutError` if that
        takes too long."""
        if self._agent.writing_paused:
            await self._agent.drain(self._seconds)
