"""Makes the errors with which agents are answered: a denial, a refusal, a failure. Knows SQLSTATEs
and wording. Knows nothing of how a decision is made."""

from typing import NamedTuple

import orjson

from policies.ground.errors import SluiceError
from sidecar.postgres.backend import Severity, error, error_fields, parse_error
from sidecar.postgres.frames import Frame
from sidecar.postgres.payload import message
from sidecar.proxy.pipeline.authorizer import Denied
from sidecar.proxy.postgres.conversation import ServerLost

DENIED = "42501"  # insufficient_privilege
UNREADABLE = "42601"  # syntax_error
CLOSED = "0A000"  # feature_not_supported
UNRECORDED = "53300"  # too_many_connections: the class of failures that are worth another try
TOO_LARGE = "54000"  # program_limit_exceeded
UNREACHABLE = "08006"  # connection_failure

# What the server says in these words of its own, whatever a statement reads: an administrator or a
# crash has ended the session, or one of the server's time limits.
_ENDS = ("57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04")

# The context of an error quotes the statements inside functions.
_INNER = ("W", "p", "q")


class Refusal(NamedTuple):
    """An error for the agent."""

    sqlstate: str
    message: str
    detail: str = ""
    hint: str = ""
    position: int = 0
    """The character of the text, counted from 1, that is to blame; 0 if none is."""

    def encode(self) -> bytes:
        return self._encoded("ERROR")

    def fatal(self) -> bytes:
        """Return the error as one that ends the connection."""
        return self._encoded("FATAL")

    def _encoded(self, severity: Severity) -> bytes:
        detail, hint, position = self.detail or None, self.hint or None, self.position or None
        return error(self.sqlstate, self.message, detail, hint, severity, position)


def of_denial(denied: Denied, sqlstate: str = DENIED) -> Refusal:
    """Return the error for a denied statement. Its detail is the decision as JSON, as the API
    answers an evaluation."""
    detail = orjson.dumps(denied.recorded.evaluation()).decode()
    return Refusal(sqlstate, denied.decision.reason, detail)


def of_stop(stopped: Denied | SluiceError) -> Refusal:
    """Return the error for a statement that was denied, or not decided."""
    return of_denial(stopped) if isinstance(stopped, Denied) else of_failure(stopped)


def of_failure(error: SluiceError) -> Refusal:
    """Return the error for a statement that was not decided, because nothing can be recorded."""
    return Refusal(UNRECORDED, error.message, hint="Try again in a second.")


def of_loss(lost: ServerLost) -> Refusal:
    """Return the error for a session that the server has ended."""
    said = None if lost.said is None else parse_error(lost.said)
    if said is not None and said.sqlstate in _ENDS:
        return Refusal(said.sqlstate, said.message)
    return Refusal(UNREACHABLE, str(lost), hint="Connect again.")


def without_context(frame: Frame) -> bytes:
    """Return a server's error or notice, without the fields that tell what ran inside it."""
    fields = parse_error(frame).fields
    kept = {code: value for code, value in fields.items() if code not in _INNER}
    return message(frame.kind, error_fields(kept))
