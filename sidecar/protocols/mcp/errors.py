"""Renders refusals as an MCP client reads them: JSON-RPC errors with the code and the status that
the specification has for each (JSON-RPC 2.0 section 5.1; MCP 2026-07-28, streamable HTTP).

Pure. Knows no routes.
"""

from http import HTTPStatus
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, error_body
from sidecar.protocols.budget import Budget, OverBudget
from sidecar.protocols.mcp import headers
from sidecar.protocols.mcp.headers import HeaderFault
from sidecar.protocols.messages import FetchedResponse, FieldIterable, RefusalResponse
from sidecar.protocols.strict_body import json_object

DENIED = -32001
METHOD_NOT_FOUND = -32601
INTERNAL = -32603
PARSE_ERROR = -32700

_JSON = (b"Content-Type", b"application/json")
_OAUTH_ERRORS = {
    400: "invalid_request",
    403: "access_denied",
    503: "temporarily_unavailable",
}


class NotJson(NamedTuple):
    """Stands for a body that is not JSON. A parser returns it, since the answer depends on it."""

    fault: str


def message_body(
    raw: bytes, media_type: str | None, budget: Budget | None = None
) -> dict[str, Any] | NotJson:
    """Return one JSON object, as `json_object` reads it, or `NotJson`."""
    try:
        return json_object(raw, media_type, budget)
    except OverBudget:
        raise
    except Malformed as error:
        try:
            orjson.loads(raw)
        except orjson.JSONDecodeError:
            return NotJson(error.message)
        raise


def unreadable(
    refusal: RefusalResponse, message: Any, fault: HeaderFault | None
) -> FetchedResponse:
    """Return the response to a message that can't be read, or whose header fields disagree with
    it."""
    code = PARSE_ERROR if isinstance(message, NotJson) else headers.INVALID_REQUEST
    data: dict[str, Any] = {**refusal.decision}
    if fault is not None:
        code = fault.code
        data.update(fault.data)
    return _error(400, code, refusal.message, data, message)


def unknown_method(
    refusal: RefusalResponse, message: dict[str, Any], fields: FieldIterable
) -> FetchedResponse:
    """Return the response to a request with a closed method: 404 where the specification says so.
    In older versions a 404 ends the session, so there it is 200."""
    status = 404 if headers.version_of(fields) == headers.MODERN else 200
    return _error(status, METHOD_NOT_FOUND, refusal.message, {**refusal.decision}, message)


def refused(refusal: RefusalResponse, message: dict[str, Any]) -> FetchedResponse:
    """Return the response to a denied request. Its status is 200, so that agent frameworks show the
    error to their model (`protocols/RULES.md`, MCP). An outage or an error of the sidecar keeps its
    own status, so that clients may try again."""
    if not refusal.decision:
        data = {"error": HTTPStatus(refusal.status).phrase, "code": refusal.status}
        return _error(refusal.status, INTERNAL, refusal.message, data, message)
    status = refusal.status if refusal.status >= 500 else 200
    return _error(status, DENIED, refusal.message, {**refusal.decision}, message)


def wrong_method(refusal: RefusalResponse, allowed: str) -> FetchedResponse:
    """Return the response to an HTTP method that the endpoint doesn't have; `allowed` are those
    that it has."""
    body = {**error_body(405, refusal.message), "decision": refusal.decision}
    return FetchedResponse(405, "", [(b"Allow", allowed.encode()), _JSON], orjson.dumps(body))


def oauth(refusal: RefusalResponse) -> FetchedResponse:
    """Return the response to a request for registration or a token (RFC 6749 sections 4.1.2.1 and
    5.2)."""
    error = _OAUTH_ERRORS.get(refusal.status, "server_error")
    body: dict[str, Any] = {"error": error, "error_description": refusal.message}
    if refusal.decision:
        body["decision"] = refusal.decision
    return FetchedResponse(refusal.status, "", [_JSON], orjson.dumps(body))


def _error(
    status: int, code: int, text: str, data: dict[str, Any], message: Any
) -> FetchedResponse:
    identity = message.get("id") if isinstance(message, dict) else None
    if type(identity) not in (str, int):
        identity = None
    error = {"code": code, "message": text, "data": data}
    whole = {"jsonrpc": "2.0", "id": identity, "error": error}
    return FetchedResponse(status, "", [_JSON], orjson.dumps(whole))
