"""Keeps a session's transaction at the server.

Every judged statement runs in a transaction, so that what its looks saw stays as it was. Where the
agent has begun none, one of ours is around the messages up to its `Sync`, and is committed there,
as the server would do. Before each part of a statement there is a savepoint: after an error the
transaction could not be asked which relations were read (`GROUND.md`).

A statement that is denied ends as one that failed: the transaction of the agent is aborted, and the
server's own rules say what may follow. Knows transactions. Knows nothing of what runs in them.
"""

from sidecar.http.attribution import Attribution
from sidecar.postgres.backend import Status
from sidecar.postgres.frames import Frame
from sidecar.proxy.postgres.conversation import (
    RESERVED,
    Conversation,
    OwnStatements,
    Step,
    prepare_step,
)
from sidecar.proxy.postgres.looks import Relation

_POINT = RESERVED + "point"
TEXTS = {
    "begin": "BEGIN",
    "commit": "COMMIT",
    "rollback": "ROLLBACK",
    "save": f"SAVEPOINT {_POINT}",
    "release": f"RELEASE SAVEPOINT {_POINT}",
    "back": f"ROLLBACK TO SAVEPOINT {_POINT}",
    "replan": "DISCARD PLANS",
    "immediate": "SET CONSTRAINTS ALL IMMEDIATE",
}
"""The statements of ours that a transaction needs."""
# A syntax error, so that the server aborts the transaction; it also says why in the server's log.
FAIL = prepare_step(b"", "the sidecar has denied a statement")

IDLE, FAILED = b"I", b"E"


class Transaction:
    """The transaction of one session."""

    def __init__(self, conversation: Conversation, own: OwnStatements) -> None:
        self._conversation = conversation
        self._own = own
        self.agents = False
        """True if the agent has begun a transaction."""
        self.ours = False
        """True if a transaction of ours is around the agent's messages."""
        self.bound = False
        """True if the messages up to `Sync` have bound something in the server's own transaction
        around them."""
        self.locked: dict[int, Relation] = {}
        """The relations that the looks of this transaction have shown, by oid."""
        self.counted: dict[int, int] | None = None
        """The blocks that the last look counted; None if none has counted in this transaction."""
        self.callers: set[Attribution] = set()
        """For whom the statements of this transaction were judged."""

    @property
    def failed(self) -> bool:
        """True if the agent's transaction is aborted, so that the server refuses all but its
        end."""
        return self._conversation.state == FAILED

    @property
    def open(self) -> bool:
        """True if more than the statement at hand is in the transaction."""
        return self.agents or self.ours or self.bound

    def enter(self) -> list[Step]:
        """Return the steps that come before a part of a judged statement."""
        steps = [self.save()]
        if not (self.agents or self.ours):
            self.ours = True
            steps.insert(0, self._own.run("begin"))
        return steps

    def save(self) -> Step:
        """Return the step that makes a savepoint inside a transaction."""
        return self._own.run("save")

    def leave(self) -> Step:
        """Return the step that comes after it, if it did not fail."""
        return self._own.run("release")

    def back(self) -> Step:
        """Return the step that comes after it if it failed: the transaction goes on as before."""
        return self._own.run("back")

    def begun(self) -> None:
        """Note that the agent has begun a transaction."""
        # One of ours becomes the agent's: the server began it anew with the first message.
        self.agents, self.ours = True, False

    def ended(self, *, chained: bool = False) -> None:
        """Note that the agent has ended a transaction; `chained` says that the next one began."""
        self.agents, self.ours = chained, False
        self.bound = False
        self._forget()
        self._goes_on()

    def rolled_back(self) -> None:
        """Note that the agent has gone back to a savepoint, which released some locks."""
        self.locked.clear()
        self._goes_on()

    def _goes_on(self) -> None:
        """Note that the server takes statements again, before the agent's `Sync` says so: what
        follows in the pipeline has to be judged."""
        self._conversation.recovered()

    async def end_segment(self, *, failed: bool) -> tuple[Status, Frame | None]:
        """End the messages up to the agent's `Sync`, one of which may have failed or been denied.
        Returns the state of the transaction that the agent is told, and the error that the end
        caused."""
        conversation, error = self._conversation, None
        if self.ours:
            outcome = await conversation.run([self._own.run("rollback" if failed else "commit")])
            error = outcome.error
        elif self.agents and failed and not self.failed:
            await conversation.run([FAIL])
        late = await conversation.sync()
        if self.ours and conversation.state != IDLE:
            # A cancel of the agent has met our own statement.
            await conversation.run([self._own.run("rollback")])
            await conversation.sync()
        state = conversation.state
        self.ours = self.bound = False
        self.agents = state != IDLE
        if state == IDLE:
            self._forget()
        return state, error or late

    def _forget(self) -> None:
        self.locked, self.counted = {}, None
        self.callers.clear()
