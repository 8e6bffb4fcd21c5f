"""Checks that the header fields of an MCP request agree with its body, and renders refusals as
JSON-RPC errors (MCP 2026-07-28, streamable HTTP, "server validation"; JSON-RPC 2.0 section 5.1)."""

import re
from base64 import b64decode, b64encode
from binascii import Error
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, error_body
from sidecar.protocols.protocol import FetchedResponse, FieldIterable, RefusalResponse
from sidecar.protocols.strict_body import Budget, OverBudget, json_object

MODERN = "2026-07-28"
OLDER_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

# Error codes of the specification, which reserves -32020 to -32099.
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602

SESSION = "mcp-session-id"
_VERSION, _METHOD = "mcp-protocol-version", "mcp-method"
_NAME, _PARAM = "mcp-name", "mcp-param-"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# Methods of the tasks extension, which a server may not support: `Mcp-Name` is optional for them.
_NAMED_TASK = frozenset(("tasks/get", "tasks/update", "tasks/cancel"))

_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL).fullmatch
_DECIMAL = re.compile(r"(-?[0-9]+)(?:\.0+)?").fullmatch


class ServerVersions:
    """The protocol versions that one MCP server speaks, limited to those that the sidecar knows."""

    def __init__(self) -> None:
        self.supported = [MODERN, *OLDER_VERSIONS]
        """The known versions; all that the sidecar knows, until the server has listed its own."""

    def learn(self, listed: Any) -> list[str]:
        """Remember the versions that the server `listed`. Returns those of them that the sidecar
        knows, since it would refuse clients that choose another version; empty if `listed` is not a
        list."""
        named = listed if isinstance(listed, list) else []
        known = [each for each in named if each == MODERN or each in OLDER_VERSIONS]
        if known:
            self.supported = known
        return known


class HeaderFault(NamedTuple):
    """A JSON-RPC error for a request whose header fields contradict its body: its code, its
    message, and the additional `data` that the MCP specification requires."""

    code: int
    message: str
    data: dict[str, Any]


def fault(
    fields: FieldIterable, message: dict[str, Any], supported: list[str]
) -> HeaderFault | None:
    """Return the error if the header fields contradict a well-formed message; None if they agree.
    `supported` are the versions that the server speaks."""
    headers = _mcp_fields(fields)
    # Checked in every version: of a field that occurs twice, a server may read either value.
    for name in (_VERSION, SESSION):
        if len(headers.get(name, ())) > 1:
            return _mismatch(f"the header `{name}` occurs twice")
    # Without the header, a server assumes an older version, in which the rest is not checked.
    versions = headers.get(_VERSION)
    version = versions[0] if versions else None
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    inner = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
    if version is not None and version != MODERN and version not in OLDER_VERSIONS:
        known = {"supported": supported, "requested": version}
        return HeaderFault(UNSUPPORTED_VERSION, "this protocol version is not supported", known)
    if inner is not None and inner != version:
        return _mismatch(f"the header `{_VERSION}` and the body's version differ")
    # The other fields have no meaning in older versions, and are ignored.
    if version != MODERN:
        return None
    if "method" not in message or "id" not in message:
        return _fault_without_response(headers, message)
    if inner is None:
        missing = f"the message's `_meta` must state `{_VERSION_KEY}`, as the header does"
        return HeaderFault(INVALID_PARAMS, missing, {})
    return _request_fault(headers, message)


def session_id(fields: FieldIterable) -> str | None:
    """Return the session id in the header fields of a request, None without one. Call it only after
    `fault` has found that there is at most one."""
    return next(iter(_mcp_fields(fields).get(SESSION, ())), None)


def _fault_without_response(
    headers: dict[str, list[str]], message: dict[str, Any]
) -> HeaderFault | None:
    """Return the fault of a message that gets no response: a notification, whose header fields the
    specification leaves open, or a response that the client posts."""
    if "method" not in message:
        why = f"version {MODERN} does not allow posting a response"
        return HeaderFault(INVALID_REQUEST, why, {})
    if any(method != message["method"] for method in headers.get(_METHOD, ())):
        return _mismatch(f"the header `{_METHOD}` and the body's method differ")
    return None


def _request_fault(headers: dict[str, list[str]], message: dict[str, Any]) -> HeaderFault | None:
    method, params = message["method"], message["params"]
    # Require the field once, in the body's own spelling: of several, a gateway may route by the
    # first or the last.
    if headers.get(_METHOD) != [method]:
        return _mismatch(f"the header `{_METHOD}` must state the body's method, once")
    key = _NAMED.get(method)
    names = headers.get(_NAME, [])
    if key is None and method in _NAMED_TASK and names:
        key = "taskId"
    if key is not None and list(map(decoded, names)) != [params.get(key)]:
        return _mismatch(f"the header `{_NAME}` must state the body's `{key}`, once")
    if method == "tools/call":
        return _argument_fault(headers, params.get("arguments"))
    return None


def _argument_fault(headers: dict[str, list[str]], arguments: Any) -> HeaderFault | None:
    """Return a fault unless each header `Mcp-Param-…` repeats the value of some argument. The
    tool's definition says which argument it must be; the sidecar doesn't have it, so the server
    checks that."""
    values: set[str] | None = None
    for name, lines in headers.items():
        if not name.startswith(_PARAM):
            continue
        # Collect the values once, and only if there is such a field: arguments may be large.
        if values is None:
            values = _argument_values(arguments)
        text = decoded(lines[0])
        # The body may say `3` where the header says `3.0`, or the reverse.
        number = None if text is None else _DECIMAL(text)
        if len(lines) > 1 or (text not in values and (not number or number[1] not in values)):
            return _mismatch(f"the header `{name[:64]}` must state the value of an argument, once")
    return None


def decoded(value: str) -> str | None:
    """Return the value of a header field, decoded if it has the form `=?base64?…?=`. Returns None
    if the encoded part is not canonical base64 of UTF-8."""
    # A lenient decoder skips characters outside Base64, so two texts could stand for one value.
    found = _ENCODED(value)
    if found is None:
        return value
    try:
        raw = b64decode(found[1], validate=True)
        return raw.decode("utf-8") if b64encode(raw).decode() == found[1] else None
    except (Error, UnicodeDecodeError, ValueError):
        return None


def _mcp_fields(fields: FieldIterable) -> dict[str, list[str]]:
    # `Mcp_Name` counts as `Mcp-Name`, since CGI and WSGI don't tell them apart.
    found: dict[str, list[str]] = {}
    # Keep all values of a field that occurs several times: the callers refuse those.
    for name, value in fields:
        if name[:3].lower() == b"mcp":
            plain = name.lower().replace(b"_", b"-").decode("latin-1")
            found.setdefault(plain, []).append(value.decode("latin-1").strip(" \t"))
    return found


def _argument_values(arguments: Any) -> set[str]:
    found: set[str] = set()
    pending = [arguments]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending += node.values()
        # Check before `int`, of which `bool` is a subclass.
        elif isinstance(node, bool):
            found.add("true" if node else "false")
        elif isinstance(node, str):
            found.add(node)
        elif isinstance(node, float):
            found.add(str(int(node)) if node.is_integer() else str(node))
        elif isinstance(node, int):
            found.add(str(node))
    return found


def _mismatch(message: str) -> HeaderFault:
    return HeaderFault(HEADER_MISMATCH, message, {})


DENIED = -32001
METHOD_NOT_FOUND = -32601
INTERNAL = -32603
PARSE_ERROR = -32700

_JSON = (b"Content-Type", b"application/json")
_OAUTH_ERRORS = {400: "invalid_request", 403: "access_denied", 503: "temporarily_unavailable"}


class NotJson(NamedTuple):
    """The result of parsing a body that is not JSON. The parser returns it instead of raising,
    since the response depends on it: a JSON-RPC parse error."""

    fault: str


def message_body(
    raw: bytes, media_type: str | None, budget: Budget | None = None
) -> dict[str, Any] | NotJson:
    """Parse a body as one JSON object, as `json_object` does. Returns `NotJson` if the body is not
    JSON. Raises `Malformed` if it is JSON but not acceptable."""
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
    """Return the error response to a message that can't be read, or that its header fields
    contradict (`fault`)."""
    unread = PARSE_ERROR if isinstance(message, NotJson) else INVALID_REQUEST
    code, data = (unread, {}) if fault is None else (fault.code, fault.data)
    return _error(400, code, refusal.message, {**refusal.decision, **data}, message)


def unknown_method(
    refusal: RefusalResponse, message: dict[str, Any], fields: FieldIterable
) -> FetchedResponse:
    """Return the error response to a request whose method is unknown or denied. Its status is 404
    where the specification says so. In older versions a 404 ends the session, so there it is
    200."""
    # `fault` has found that there is at most one version.
    status = 404 if _mcp_fields(fields).get(_VERSION) == [MODERN] else 200
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
    """Return the 405 response to an HTTP method that the endpoint doesn't have. `allowed` are the
    methods that it has."""
    body = {**error_body(405, refusal.message), "decision": refusal.decision}
    return FetchedResponse(405, "", [(b"Allow", allowed.encode()), _JSON], orjson.dumps(body))


def oauth(refusal: RefusalResponse) -> FetchedResponse:
    """Return the OAuth error response to a refused request to the authorization server (RFC 6749
    sections 4.1.2.1 and 5.2)."""
    error = _OAUTH_ERRORS.get(refusal.status, "server_error")
    body: dict[str, Any] = {"error": error, "error_description": refusal.message}
    if refusal.decision:
        body["decision"] = refusal.decision
    return FetchedResponse(refusal.status, "", [_JSON], orjson.dumps(body))


def _error(
    status: int, code: int, text: str, data: dict[str, Any], message: Any
) -> FetchedResponse:
    identity = message.get("id") if isinstance(message, dict) else None
    known = identity if type(identity) in (str, int) else None
    error = {"code": code, "message": text, "data": data}
    whole = {"jsonrpc": "2.0", "id": known, "error": error}
    return FetchedResponse(status, "", [_JSON], orjson.dumps(whole))
