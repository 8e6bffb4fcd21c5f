"""Checks the form of MCP messages, so that every parser reads them alike, and finds the sources
that a request names (`protocols/RULES.md`, MCP).

A server may treat a URI as plain text, parse it by RFC 3986, or as a browser does (WHATWG URL).
Spellings that any of these treats as the same URI get one form here, or are refused.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import AddressValueError, IPv4Address
from typing import Any
from urllib.parse import quote

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical, encode_segment
from sidecar.protocols.protocol import SourceRef, Unresolved
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_queries import CONTROL, decode_escapes
from sidecar.protocols.strict_body import MAX_SOURCES, OverBudget

MAX_LENGTH = 2048

_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL).fullmatch
# Control characters and `\`, which a browser drops or rewrites, and the `#` of a fragment.
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\\#]").search

# The schemes whose authority and path a browser normalises (WHATWG's "special" schemes), each with
# the default port that it removes.
_SPECIAL = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "file": ""}
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?").fullmatch
# No leading zeros: a port has only one spelling.
_PORT = re.compile(r"[1-9][0-9]{0,4}").fullmatch
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch

_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_ESCAPED_AGAIN = re.compile(r"%[0-9A-Fa-f]{2}").search


def canonical_uri(text: object) -> str:
    """Return the canonical form of a URI, which may be `text` itself. Raises `Unresolved` if two
    parsers could disagree on its meaning. Case is significant, except in the scheme, and in the
    host of a special scheme such as `http`."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_LENGTH:
        raise Unresolved(f"the uri must be a string of 1 to {MAX_LENGTH} characters")
    found = _FORM(text)
    if found is None or _UNREADABLE(text) or text != text.strip():
        raise Unresolved("the uri has no scheme, or holds a `#`, a `\\` or a control character")
    scheme, rest = found[1].lower(), found[2]
    head, _, query = rest.partition("?")
    try:
        return f"{scheme}:{_canonical_hierarchy(scheme, head)}{_canonical_query(query)}"
    except Malformed as error:
        raise Unresolved(f"the uri is ambiguous: {error.message}") from error


def _canonical_hierarchy(scheme: str, head: str) -> str:
    if not head.startswith("//"):
        # A browser reads `http:a` as `http://a`; to other parsers `a` is a path.
        if scheme in _SPECIAL:
            raise Malformed(f"`{scheme}:` must be followed by `//`")
        return _canonical_path(head)
    authority, slash, path = head[2:].partition("/")
    path = _canonical_path(slash + path)
    if scheme in _SPECIAL:
        return f"//{_canonical_authority(scheme, authority)}{path or '/'}"
    # In other schemes the authority is a name like those in the path, often the resource's own.
    return f"//{_canonical_path(authority)}{path}"


def _canonical_authority(scheme: str, authority: str) -> str:
    host, colon, port = authority.lower().partition(":")
    # RFC 8089 section 2: `file:///x` and `file://localhost/x` are the same file.
    if scheme == "file" and authority.lower() in ("", "localhost"):
        return ""
    # This also refuses `user@host`, IPv6 and names outside ASCII, which have several spellings.
    if not _HOST(host) or ".." in host or _is_unusual_ipv4(host):
        raise Malformed("the host must be a plain name or an IPv4 address")
    if not colon or port == _SPECIAL[scheme]:
        return host
    if not _PORT(port) or scheme == "file":
        raise Malformed("the port must be a plain number")
    return f"{host}:{port}"


def _is_unusual_ipv4(host: str) -> bool:
    """Return whether a browser reads the host as an IPv4 address in a spelling like `0x7f.1`."""
    if not _NUMBER(host.rpartition(".")[2]):
        return False
    try:
        return str(IPv4Address(host)) != host
    except AddressValueError:
        return True


def _canonical_path(path: str) -> str:
    """Return the canonical form of a URI's path, by the rules of `request_target.canonical`: no dot
    segments, no empty segments, no escaped slashes, no double escapes."""
    if not path:
        return ""
    absolute = path.startswith("/")
    written = canonical(quote(path if absolute else "/" + path, safe=_PRINTABLE)).path
    return written if absolute else written[1:]


def _canonical_query(query: str) -> str:
    if not query:
        return ""
    # Some readers take `+` for a space, and `;` for the end of a pair.
    if "+" in query or ";" in query:
        raise Malformed("the query holds a `+` or `;`: write `%20`, `%2B` or `%3B`")
    pairs = [pair.partition("=") for pair in query.split("&")]
    written = (_canonical_text(name) + equals + _canonical_text(v) for name, equals, v in pairs)
    return "?" + "&".join(written)


def _canonical_text(text: str) -> str:
    plain = decode_escapes(text)
    if CONTROL(plain) or "\\" in plain or _ESCAPED_AGAIN(plain):
        raise Malformed("the query holds an escaped control character or `\\`, or is escaped twice")
    segments = plain.split("/")
    # A server that treats the URI as a file name reads the query as part of the path.
    if any(segment.partition(";")[0] in (".", "..") for segment in segments):
        raise Malformed("the query holds a dot segment")
    # `encode_segment` leaves `=` and `&`, which would divide pairs here.
    return "/".join(map(encode_segment, segments)).replace("=", "%3D").replace("&", "%26")


# The members that decisions depend on. Others pass in any spelling.
_MESSAGE = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))
_PARAMS = frozenset((
    "_meta", "name", "arguments", "uri", "ref", "taskId", "requestState", "notifications",
))  # fmt: skip
_REF = frozenset(("type", "name", "uri"))
_FILTER = frozenset(("resourceSubscriptions", "taskIds"))


# The requests and notifications that a server may send to its client. Others are dropped.
SERVER_REQUESTS = frozenset((
    "elicitation/create", "ping", "roots/list", "sampling/createMessage", "tasks/cancel",
    "tasks/get", "tasks/list", "tasks/result",
))  # fmt: skip
SERVER_NOTIFICATIONS = frozenset((
    "notifications/cancelled", "notifications/elicitation/complete", "notifications/message",
    "notifications/progress", "notifications/prompts/list_changed",
    "notifications/resources/list_changed", "notifications/subscriptions/acknowledged",
    "notifications/tools/list_changed",
))  # fmt: skip
# The members of a result that can be filtered without knowing which call it answers.
LISTS = ("tools", "prompts", "resources", "resourceTemplates", "tasks")
LIST_RESULT = frozenset((
    "_meta", "resultType", "nextCursor", "ttlMs", "cacheScope", *LISTS, "protocolVersion",
    "supportedVersions", "capabilities", "serverInfo", "instructions",
))  # fmt: skip
# The members of a result that are filtered by the names in them, or describe the message itself.
FILTERED_MEMBERS = frozenset((*LISTS, "contents", "_meta"))
# Each of these names a task, so it is judged by the task's sources.
TASK_NOTIFICATIONS = frozenset(("notifications/tasks", "notifications/tasks/status"))


def check_message(message: dict[str, Any]) -> None:
    """Raise `Malformed` unless every parser reads the message as the same request, notification or
    response."""
    _check_spelling(message, _MESSAGE)
    if message.get("jsonrpc") != "2.0":
        raise Malformed("the body is not a JSON-RPC 2.0 message")
    # MCP forbids a null id, and a server might read such a request as a notification. `type`, since
    # `True` is an `int` to `isinstance`.
    if "id" in message and type(message["id"]) not in (str, int):
        raise Malformed("the message's `id` must be a string or an integer")
    if "method" in message:
        if not isinstance(message["method"], str) or "result" in message or "error" in message:
            needs = "must name one, and hold no `result` or `error`"
            raise Malformed(f"a message with `method` {needs}")
    # With neither a method nor exactly one result, readers differ on what the message is.
    elif "id" not in message or ("result" in message) == ("error" in message):
        raise Malformed("the message is neither a request nor a response")
    if not isinstance(message.get("params"), dict | None):
        raise Malformed("the message's `params` must be an object")
    params = message.get("params") or {}
    _check_spelling(params, _PARAMS)
    for key, known in (("ref", _REF), ("notifications", _FILTER)):
        if isinstance(params.get(key), dict):
            _check_spelling(params[key], known)


def _check_spelling(members: dict[str, Any], known: Iterable[str]) -> None:
    # Some parsers (Go's `encoding/json`) read `Method` as `method`, and use the later of the two.
    folded = {name.casefold() for name in known}
    for name in members:
        if name not in known and name.casefold() in folded:
            raise Malformed(f"the key `{name[:64]}` differs from a known key only in case")


class McpObjects:
    """Names the objects of one MCP server as sources: its tools, prompts and resources, and the
    data sources that a tool's arguments name. `arguments` maps the name of a tool to the path of
    the argument that holds names of data sources."""

    def __init__(
        self, naming: SourceNames, arguments: Mapping[str, str], vendors: Iterable[str] = ()
    ) -> None:
        self._naming = naming
        self.vendors = frozenset(vendors)
        """The JSON-RPC methods that the configuration adds to those of the protocol."""
        self._arguments = {tool: path.split(".") for tool, path in arguments.items()}

    def tool(self, name: object) -> SourceRef:
        return self._naming.of("tool", _expect_text(name, "tool"))

    def prompt(self, name: object) -> SourceRef:
        return self._naming.of("prompt", _expect_text(name, "prompt"))

    def resource(self, uri: object) -> SourceRef:
        # Named as a path: its slashes divide the source id, so that policies can allow a folder.
        return self._naming.of_path("/resource/" + canonical_uri(uri))

    def authorization(self) -> SourceRef:
        return self._naming.of("authorization")

    def vendor(self, method: object) -> SourceRef:
        """Return the source of a JSON-RPC method that the configuration adds. Slashes in the
        method's name divide the source id."""
        return self._naming.of_path(f"/method/{method}")

    def tool_sources(self, params: dict[str, Any]) -> tuple[SourceRef, ...]:
        """Return the tool that is called, and the data sources that its arguments name."""
        # The tool is judged too: a policy may allow the data but not this way to it.
        tool = self.tool(params.get("name"))
        path = self._arguments.get(params["name"])
        if path is None:
            return (tool,)
        return (tool, *(self._naming.of("data", name) for name in _argument_names(params, path)))

    def completion_sources(self, params: dict[str, Any]) -> tuple[SourceRef, ...]:
        """Return the prompt or the resource template whose argument the client wants completed."""
        ref = params.get("ref")
        if not isinstance(ref, dict):
            raise Unresolved("the completion has no `ref`")
        # A server may go by `type` or by the other members, so both are judged.
        sources = []
        if ref.get("type") == "ref/prompt" or "name" in ref:
            sources.append(self.prompt(ref.get("name")))
        if ref.get("type") == "ref/resource" or "uri" in ref:
            sources.append(self.resource(ref.get("uri")))
        if ref.get("type") not in ("ref/prompt", "ref/resource"):
            raise Unresolved("the completion's `ref` is of an unknown type")
        return tuple(sources)


def params_of(message: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = message.get("params") or {}
    return found


def expect_texts(value: object, what: str) -> list[str]:
    """Return the strings in the list `value`; empty if it is None. Raises `Unresolved` for anything
    else."""
    if not isinstance(value, list | None):
        raise Unresolved(f"`{what}` must be a list")
    return [_expect_text(each, what) for each in value or ()]


def _expect_text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise Unresolved(f"the {what} must be a string that is not empty")
    return value


def _argument_names(params: dict[str, Any], path: list[str]) -> list[str]:
    node: Any = params.get("arguments")
    dotted = ".".join(path)
    for step in path:
        members = node if isinstance(node, dict) else {}
        spellings = [name for name in members if name.casefold() == step.casefold()]
        # A member in two spellings counts as absent: it isn't known which one the tool reads.
        node = members[step] if spellings == [step] else None
    names = expect_texts([node] if isinstance(node, str) else node, f"argument `{dotted}`")
    # Refuse before the names become sources: the list may hold hundreds of thousands of names.
    if len(set(names)) > MAX_SOURCES:
        raise OverBudget(f"the argument `{dotted}` names more than {MAX_SOURCES} sources")
    if not names:
        raise Unresolved(f"the argument `{dotted}`, which names what is read, is absent")
    return names
