"""What a gateway gets over HTTP: a status that no gateway takes for leave unless it is one.

Only 200, 401, 403, 404 and 413 leave a door, and 400 for what is no HTTP: gateways that fail open
take a 5xx for leave (`INTEGRATIONS.md`, Check doors over HTTP).
"""

from typing import NamedTuple

import orjson

from policies.ground.errors import (
    Forbidden,
    Malformed,
    NotFound,
    SluiceError,
    TooLarge,
    Unauthorized,
    error_body,
)
from sidecar.doors.check_judge import Outcome

_RETRY_SECONDS = 1
_PASSED_ON = (Unauthorized, Forbidden, NotFound, TooLarge)
_NO_DECISION = b"X-Sluice-Decision: NONE\r\nRetry-After: %d\r\n" % _RETRY_SECONDS
_OPEN = b"X-Sluice-Decision: ALLOW\r\n"
_DECIDED = {
    "ALLOW": b"X-Sluice-Decision: ALLOW\r\nX-Sluice-Event-Id: %b\r\n",
    "DENY": b"X-Sluice-Decision: DENY\r\nX-Sluice-Event-Id: %b\r\n",
}


class BrokenHttp(Malformed):
    """the request is not valid HTTP/1.1"""


class CheckAnswer(NamedTuple):
    """Each header line ends with its line break."""

    status: int
    lines: bytes
    body: bytes
    close: bool = False
    """Whether the connection ends after it."""


def of_outcome(outcome: Outcome, allow_lines: bytes) -> CheckAnswer:
    """The answer once every decision is durable."""
    shown = outcome.shown
    if shown is None:
        return CheckAnswer(200, _OPEN + allow_lines, b"")
    lines = _DECIDED[shown.decision.decision] % shown.event_id.encode()
    if outcome.passes:
        return CheckAnswer(200, lines + allow_lines, b"")
    body = error_body(403, shown.decision.reason) | {"decision": shown.evaluation()}
    return CheckAnswer(403, lines, orjson.dumps(body))


def of_error(error: SluiceError) -> CheckAnswer:
    """The answer if nothing was decided."""
    if isinstance(error, BrokenHttp):
        return CheckAnswer(400, b"", error.encoded(), close=True)
    if isinstance(error, _PASSED_ON):
        return CheckAnswer(error.status, b"", error.encoded())
    # Such as a disk that is full, or no policy set.
    body = error_body(403, error.message, error.details)
    return CheckAnswer(403, _NO_DECISION, orjson.dumps(body), close=error.status == 408)
