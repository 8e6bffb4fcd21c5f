"""Which MCP messages there are, and what each is of (data-sources.md 5.6): the form of a JSON-RPC
message that everyone reads alike, and the sources that a request names.

Pure but for what continuations remember. Knows bodies; knows no answer.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.budget import MAX_SOURCES, OverBudget
from sidecar.protocols.mcp.uri import canonical_uri
from sidecar.protocols.messages import SourceRef, Unresolved
from sidecar.protocols.shared.source_names import SourceNames

_MESSAGE = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))
_PARAMS = frozenset(
    ("_meta", "name", "arguments", "uri", "ref", "taskId", "requestState", "notifications")
)
_REF = frozenset(("type", "name", "uri"))
_FILTER = frozenset(("resourceSubscriptions", "taskIds"))


# What a server may ask of its client, and tell it. What is not here is left out.
SERVER_ASKS = frozenset(
    (
        "ping",
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "tasks/cancel",
    )
)
SERVER_TELLS = frozenset(
    (
        "notifications/cancelled",
        "notifications/progress",
        "notifications/message",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/elicitation/complete",
        "notifications/subscriptions/acknowledged",
    )
)
TELL_OF_TASKS = frozenset(("notifications/tasks", "notifications/tasks/status"))


def check_form(message: dict[str, Any]) -> None:
    """Raises `Malformed` unless it is one request, notification or answer to everyone."""
    _exact(message, _MESSAGE)
    if message.get("jsonrpc") != "2.0":
        raise Malformed("the body is not a JSON-RPC 2.0 message")
    # MCP takes no null for an id, and a server might take such a request for a notification.
    if "id" in message and type(message["id"]) not in (str, int):
        raise Malformed("the message's id is neither a string nor an integer")
    if "method" in message:
        if not isinstance(message["method"], str) or "result" in message or "error" in message:
            raise Malformed("the message is a request and an answer at once, or names no method")
    elif "id" not in message or ("result" in message) == ("error" in message):
        raise Malformed("the message is neither a request nor an answer")
    if not isinstance(message.get("params"), dict | None):
        raise Malformed("the message's parameters have no names")
    params = message.get("params") or {}
    _exact(params, _PARAMS)
    for key, known in (("ref", _REF), ("notifications", _FILTER)):
        if isinstance(params.get(key), dict):
            _exact(params[key], known)


def _exact(members: dict[str, Any], known: Iterable[str]) -> None:
    """Some readers (Go's `encoding/json`) take `Method` for `method`, and the later of the two."""
    folded = {name.casefold() for name in known}
    for name in members:
        if name not in known and name.casefold() in folded:
            raise Malformed(f"the key `{name[:64]}` differs from a known one in case alone")


class McpObjects:
    """What the things of one server are called: tools, prompts, resources, and the data sources
    that arguments name. `arguments` says for a tool where among its arguments that name stands."""

    def __init__(self, naming: SourceNames, arguments: Mapping[str, str]) -> None:
        self._naming = naming
        self._arguments = {tool: path.split(".") for tool, path in arguments.items()}

    def tool(self, name: object) -> SourceRef:
        return self._naming.of("tool", _text(name, "tool"))

    def prompt(self, name: object) -> SourceRef:
        return self._naming.of("prompt", _text(name, "prompt"))

    def resource(self, uri: object) -> SourceRef:
        """Of a resource, or of a template of some."""
        return self._naming.of_path("/resource/" + canonical_uri(uri))

    def called(self, params: dict[str, Any]) -> tuple[SourceRef, ...]:
        """The tool, and the data sources that it is to read."""
        tool = self.tool(params.get("name"))
        path = self._arguments.get(params["name"])
        if path is None:
            return (tool,)
        return (tool, *(self._naming.of("data", name) for name in _named(params, path)))

    def completed(self, params: dict[str, Any]) -> tuple[SourceRef, ...]:
        """What values are asked for: a prompt's or a template's."""
        ref = params.get("ref")
        if not isinstance(ref, dict):
            raise Unresolved("the completion refers to nothing")
        places = []
        if ref.get("type") == "ref/prompt" or "name" in ref:
            places.append(self.prompt(ref.get("name")))
        if ref.get("type") == "ref/resource" or "uri" in ref:
            places.append(self.resource(ref.get("uri")))
        if ref.get("type") not in ("ref/prompt", "ref/resource"):
            raise Unresolved("the completion refers to something unknown")
        return tuple(places)


def params_of(message: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = message.get("params") or {}
    return found


def texts(value: object, what: str) -> list[str]:
    """A list of texts, an absent one empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unresolved(f"`{what}` is not a list")
    return [_text(each, what) for each in value]


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise Unresolved(f"the {what} has no name")
    return value


def _named(params: dict[str, Any], path: list[str]) -> list[str]:
    """The names at `path` among the arguments."""
    node: Any = params.get("arguments")
    shown = ".".join(path)
    for step in path:
        if not isinstance(node, dict):
            node = None
            break
        alike = [name for name in node if name.casefold() == step.casefold()]
        if alike != [step]:
            node = None
            break
        node = node[step]
    names = texts([node] if isinstance(node, str) else node, f"argument `{shown}`")
    if len(set(names)) > MAX_SOURCES:
        raise OverBudget(f"the argument `{shown}` names more than {MAX_SOURCES} sources")
    if not names:
        raise Unresolved(f"the argument `{shown}`, which names what is read, is absent")
    return names
