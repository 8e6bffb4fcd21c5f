"""Whether a message's header fields and its body say the same (MCP 2026-07-28, streamable HTTP,
"server validation"). What is asked is decided by the body alone; a request whose header says
something else might be routed by it further on, so it is refused. Older versions know no such
fields: there they mean nothing.

Pure. Knows fields and messages; knows no route.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error
from typing import Any, NamedTuple

from sidecar.protocols.messages import FieldIterable

MODERN = "2026-07-28"
OLDER = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

# Codes of the specification; of -32020 to -32099 no other may be used.
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
INVALID_REQUEST = -32600

SESSION = "mcp-session-id"
_VERSION, _METHOD, _NAME, _PARAM = (
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-param-",
)
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# By the tasks extension, which a server need not know.
_NAMED_TASK = frozenset(("tasks/get", "tasks/update", "tasks/cancel"))

_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL).fullmatch
_DECIMAL = re.compile(r"(-?[0-9]+)(?:\.0+)?").fullmatch


class HeaderFault(NamedTuple):
    """Why a request is refused: the JSON-RPC error, and what the specification adds to its data."""

    code: int
    message: str
    data: dict[str, Any]


def fault(fields: FieldIterable, message: dict[str, Any]) -> HeaderFault | None:
    """What is wrong between a well-formed message and the fields it came with."""
    stated = _stated(fields)
    for name in (_VERSION, SESSION):
        if len(stated.get(name, ())) > 1:
            return _mismatch(f"the header `{name}` stands twice")
    versions = stated.get(_VERSION)
    version = versions[0] if versions else None
    inner = _version_of(message)
    if version is not None and version != MODERN and version not in OLDER:
        known = {"supported": [MODERN, *OLDER], "requested": version}
        return HeaderFault(UNSUPPORTED_VERSION, "this protocol version is not known here", known)
    if inner is not None and inner != version:
        return _mismatch(f"the header `{_VERSION}` and the body's version are not the same")
    if version != MODERN:
        return None
    if "method" not in message or "id" not in message:
        return _of_the_rest(stated, message)
    if inner is None:
        return _mismatch(f"the body does not state the version of the header `{_VERSION}`")
    return _of_a_request(stated, message)


def session_of(fields: FieldIterable) -> str | None:
    """The session that a request states, once it is known to state one only."""
    stated = _stated(fields).get(SESSION)
    return stated[0] if stated else None


def _of_the_rest(stated: dict[str, list[str]], message: dict[str, Any]) -> HeaderFault | None:
    """Of a notification, whose fields the specification leaves open, or an answer."""
    if "method" not in message:
        return HeaderFault(INVALID_REQUEST, f"an answer may not be posted in version {MODERN}", {})
    if any(method != message["method"] for method in stated.get(_METHOD, ())):
        return _mismatch(f"the header `{_METHOD}` and the body's method are not the same")
    return None


def _of_a_request(stated: dict[str, list[str]], message: dict[str, Any]) -> HeaderFault | None:
    method, params = message["method"], message["params"]
    if stated.get(_METHOD) != [method]:
        return _mismatch(f"the header `{_METHOD}` is not the body's method, once")
    key = _NAMED.get(method)
    names = stated.get(_NAME, [])
    if key is None and method in _NAMED_TASK and names:
        key = "taskId"
    if key is not None and list(map(decoded, names)) != [params.get(key)]:
        return _mismatch(f"the header `{_NAME}` is not the body's `{key}`, once")
    if method == "tools/call":
        return _of_arguments(stated, params.get("arguments"))
    return None


def _of_arguments(stated: dict[str, list[str]], arguments: Any) -> HeaderFault | None:
    """Which argument a `Mcp-Param-…` repeats is the tool's own definition, which is not known here:
    its value must be that of some argument. The server compares it with the one that is meant."""
    values: set[str] | None = None
    for name, lines in stated.items():
        if not name.startswith(_PARAM):
            continue
        if values is None:
            values = _scalars(arguments)
        text = decoded(lines[0])
        number = None if text is None else _DECIMAL(text)
        if len(lines) > 1 or (text not in values and (not number or number[1] not in values)):
            return _mismatch(f"the header `{name[:64]}` is not the value of an argument, once")
    return None


def decoded(value: str) -> str | None:
    """A field's value, out of its `=?base64?…?=` where it stands in one; None where that does not
    hold base64 of UTF-8 as it is usually written."""
    found = _ENCODED(value)
    if found is None:
        return value
    try:
        raw = b64decode(found[1], validate=True)
        return raw.decode("utf-8") if b64encode(raw).decode() == found[1] else None
    except (Error, UnicodeDecodeError, ValueError):
        return None


def _stated(fields: FieldIterable) -> dict[str, list[str]]:
    """The protocol's fields. `Mcp_Name` and `Mcp-Name` are one to whatever runs CGI or WSGI."""
    found: dict[str, list[str]] = {}
    for name, value in fields:
        if name[:3].lower() == b"mcp":
            plain = name.lower().replace(b"_", b"-").decode("latin-1")
            found.setdefault(plain, []).append(value.decode("latin-1").strip(" \t"))
    return found


def _version_of(message: dict[str, Any]) -> Any:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get(_VERSION_KEY) if isinstance(meta, dict) else None


def _scalars(arguments: Any) -> set[str]:
    found: set[str] = set()
    pending = [arguments]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending += node.values()
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
