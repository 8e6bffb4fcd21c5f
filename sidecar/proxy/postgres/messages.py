"""Makes steps of an agent's messages: which of them are about one statement, and where a look
follows. Knows messages and steps. Knows nothing of a session."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from policies.statement import Look
from sidecar.postgres import frontend
from sidecar.postgres.frontend import Bind, Close, Describe, Parse
from sidecar.proxy.postgres.conversation import BOUND, CLOSED, DESCRIBED, PARSED, Step
from sidecar.proxy.postgres.lookout import Part
from sidecar.proxy.postgres.registry import Prepared

Message = Parse | Bind | Describe | Close


class Received(NamedTuple):
    """A message of the agent, and its bytes."""

    message: Message
    raw: bytes


def continues(first: Message, message: Message) -> bool:
    """Return whether a message is about the statement that `first` begins."""
    if isinstance(first, Describe):
        return False
    if isinstance(message, Describe):
        return True
    return isinstance(first, Parse) and isinstance(message, Bind)


def parts_of(messages: Sequence[Message], steps: Sequence[Step]) -> list[Part]:
    """Return the steps with the looks behind them: one after the statement was parsed, and one
    after it was bound."""
    parts = []
    look: Look = "bind" if isinstance(messages[0], Bind) else "parse"
    for at, (message, step) in enumerate(zip(messages, steps, strict=True)):
        if isinstance(message, Bind):
            look = "bind"
        # A description goes with what it describes.
        last = at + 1 == len(messages) or not isinstance(messages[at + 1], Describe)
        parts.append(Part(step, look if last else None))
    return parts


def step_of(received: Received, prepared: Prepared, known: Container[bytes]) -> Step:
    """Return the step of a message; `known` are the names of the agent's prepared statements."""
    message, raw = received
    if isinstance(message, Parse):
        if prepared.local is not None:
            # What the sidecar answers by itself never reaches the server.
            raw = frontend.prepare(message.name, b"")
        if message.name and message.name not in known:
            # The server may have it of a try that was denied, or that turned out not to be plain.
            return Step(frontend.close(b"S", message.name) + raw, (PARSED,), unheard=CLOSED)
        return Step(raw, (PARSED,))
    return Step(raw, (BOUND,) if isinstance(message, Bind) else DESCRIBED)


EXECUTE = frontend.execute(b"")


def extended(text: str) -> list[Received]:
    """Return the messages of the extended protocol that prepare a statement of the simple one."""
    sql = text.encode()
    return [
        Received(Parse(b"", sql, ()), frontend.prepare(b"", sql)),
        Received(Bind(b"", b"", (), (), ()), frontend.bind(b"", b"")),
        Received(Describe(b"P", b""), frontend.describe(b"P", b"")),
    ]
