"""The error body (`CONTRACT.md`, Errors), the same for every status."""

from typing import Any

import orjson

from tests.support.sidecar import EVALUATE, RunningSidecar

PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


# The reason phrases that RFC 9110 changed; Python 3.13 followed it.
FORMER = {413: "Request Entity Too Large", 422: "Unprocessable Entity"}


def is_error(status: int, body: bytes) -> dict[str, Any]:
    """Checks the form of the error body, the same for every status."""
    told: dict[str, Any] = orjson.loads(body)
    assert told["code"] == status
    assert told["error"] in (PHRASES[status], FORMER.get(status))
    assert isinstance(told["message"], str)
    assert told["message"]
    assert set(told) <= {"error", "message", "code", "details"}
    assert isinstance(told.get("details", ""), str)
    return told


async def refused(
    running: RunningSidecar, status: int, method: str = "POST", path: str = EVALUATE, **sent: Any
) -> dict[str, Any]:
    """The error body of a request that must get this status, after checking the common headers."""
    answer = await running.call(method, path, **sent)
    body = answer.body
    assert answer.status == status, body
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "sluice"
    assert answer.headers["X-Request-ID"]
    return is_error(status, body)
