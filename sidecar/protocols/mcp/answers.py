"""What of an MCP server's messages an agent may see (data-sources.md 5.6): lists without what may
not be read, results without resources that may not, and of what the server says unasked only what
is known here. A message of which all may be seen is passed byte for byte.

Knows messages. Judges nothing: `Visibility.permits` does, anew for each message.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.protocols.mcp.messages import (
    SERVER_ASKS,
    SERVER_TELLS,
    TELL_OF_TASKS,
    McpObjects,
    params_of,
)
from sidecar.protocols.messages import (
    FetchedResponse,
    ForwardedPart,
    SourceRef,
    Unresolved,
    Visibility,
)
from sidecar.protocols.shared.continuations import Continuations
from sidecar.protocols.shared.document_levels import to_json
from sidecar.protocols.strict_body import json_object

DENIED = -32001

# What a result may hold that is of no one source: for an answer whose question is not known.
_LISTS = ("tools", "prompts", "resources", "resourceTemplates", "tasks")
_LISTING = frozenset(("_meta", "resultType", "nextCursor", "ttlMs", "cacheScope", *_LISTS)) | {
    "protocolVersion",
    "supportedVersions",
    "capabilities",
    "serverInfo",
    "instructions",
}
# Of a result, what is judged by its own names, or is about the message itself.
_FILTERED = frozenset((*_LISTS, "contents", "_meta"))

_DEEPEST = 100


class Tokens(NamedTuple):
    """What was issued through here, and stands for sources without naming them (R5)."""

    asked: Continuations
    """Requests whose answer may come on another stream, by session and id."""
    tasks: Continuations
    states: Continuations
    """`requestState` of results that ask for more input."""


class AllowedCall(NamedTuple):
    """The request that an answer is to; `places` are what it was allowed for."""

    identity: str | int
    places: tuple[SourceRef, ...]


class McpResponse:
    """The answer to one request, or one stream."""

    def __init__(
        self,
        things: McpObjects,
        tokens: Tokens,
        sight: Visibility,
        who: Attribution,
        session: str | None,
        question: AllowedCall | None = None,
    ) -> None:
        self._things = things
        self._tokens = tokens
        self._permits = sight.permits
        self._who = who
        self._session = session
        self._question = question
        self._withheld = 0
        self._changed = False

    def whole(self, answer: FetchedResponse) -> ForwardedPart:
        """An answer in one piece; it is empty to what asks for none."""
        passed = self.message(answer.body)
        if passed is None:
            raise UpstreamFailed("the data source answers with what is no answer")
        return passed

    def message(self, data: bytes) -> ForwardedPart | None:
        """One message as the agent may have it, None where it may not. Raises `UpstreamFailed`."""
        if not data.strip():
            return ForwardedPart(data)
        try:
            message = json_object(data, None)
        except Malformed as error:
            raise UpstreamFailed("the data source sends what is no JSON-RPC message") from error
        self._withheld, self._changed = 0, False
        kinds = [kind for kind in ("method", "result", "error") if kind in message]
        if len(kinds) != 1:
            raise UpstreamFailed("the data source sends what is no JSON-RPC message")
        if kinds == ["method"] and not self._said(message):
            return None
        if kinds == ["result"]:
            self._answered(message)
        return ForwardedPart(to_json(message) if self._changed else data, self._withheld)

    def _said(self, message: dict[str, Any]) -> bool:
        """What the server asks or tells."""
        method, params = message["method"], params_of(message)
        if not isinstance(method, str) or not isinstance(params, dict):
            return False
        if "id" in message:
            return method in SERVER_ASKS and self._sifted(params)
        if method == "notifications/resources/updated":
            return self._may(self._things.resource, params.get("uri"))
        if method in TELL_OF_TASKS:
            return self._known(self._tokens.tasks, params.get("taskId")) and self._sifted(params)
        return method in SERVER_TELLS and self._sifted(params)

    def _answered(self, message: dict[str, Any]) -> None:
        result, identity = message["result"], message.get("id")
        if not isinstance(result, dict):
            raise UpstreamFailed("the data source's result is no object")
        question = self._question
        if question is not None and _same(question.identity, identity):
            self._remember(result, question.places)
        elif not result.keys() <= _LISTING and not self._asked(identity, result):
            self._refuse(message, "what this answers was not asked here, or may not be read now")
            return
        for key, told in self._lists():
            if key in result:
                result[key] = self._filtered(result[key], told)
                # What is left is for this agent: nobody may keep it for another.
                if result.get("cacheScope", "private") != "private":
                    result["cacheScope"] = "private"
                    self._changed = True
        rest = {key: value for key, value in result.items() if key not in _FILTERED}
        if not self._sifted(rest):
            self._refuse(message, "the result holds a resource that may not be read")

    def _asked(self, identity: Any, result: dict[str, Any]) -> bool:
        """Whether this answers what was asked in the same session, and may still be read."""
        if self._session is None or type(identity) not in (str, int):
            return False
        token = asked_token(self._session, identity)
        if not self._known(self._tokens.asked, token):
            return False
        self._remember(result, self._tokens.asked.sources_of(token, self._who))
        return True

    def _remember(self, result: dict[str, Any], places: tuple[SourceRef, ...]) -> None:
        """What continues this result stands for the same sources."""
        if not places:
            return
        task = result.get("task")
        for issued in (result, task if isinstance(task, dict) else {}):
            if isinstance(issued.get("taskId"), str):
                self._tokens.tasks.remember(issued["taskId"], self._who, places)
        if isinstance(result.get("requestState"), str):
            self._tokens.states.remember(result["requestState"], self._who, places)

    def _lists(self) -> tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...]:
        things, may = self._things, self._may
        return (
            ("tools", lambda each: may(things.tool, each.get("name"))),
            ("prompts", lambda each: may(things.prompt, each.get("name"))),
            ("resources", lambda each: may(things.resource, each.get("uri"))),
            ("resourceTemplates", lambda each: may(things.resource, each.get("uriTemplate"))),
            ("contents", lambda each: may(things.resource, each.get("uri"))),
            ("tasks", lambda each: self._known(self._tokens.tasks, each.get("taskId"))),
        )

    def _filtered(self, elements: Any, told: Callable[[dict[str, Any]], bool]) -> list[Any]:
        if not isinstance(elements, list) or not all(isinstance(each, dict) for each in elements):
            raise UpstreamFailed("the data source's list is none of objects")
        kept = [each for each in elements if told(each)]
        self._leave_out(len(elements) - len(kept))
        return kept

    def _sifted(self, node: Any, depth: int = 0) -> bool:
        """Leaves out of every list in `node` the resources that may not be read. False where one
        stands outside of any list."""
        if depth > _DEEPEST:
            raise UpstreamFailed("the data source's answer is nested too deeply")
        if isinstance(node, dict):
            if not self._block(node):
                return False
            return all(self._sifted(each, depth + 1) for each in node.values() if _nested(each))
        if isinstance(node, list):
            kept = [each for each in node if not _nested(each) or self._sifted(each, depth + 1)]
            self._leave_out(len(node) - len(kept))
            node[:] = kept
        return True

    def _block(self, node: dict[str, Any]) -> bool:
        """Whether a block of content may be seen; whatever is none may."""
        kind = node.get("type")
        if kind == "resource_link":
            return self._may(self._things.resource, node.get("uri"))
        if kind == "resource" and "resource" in node:
            inner = node["resource"]
            uri = inner.get("uri") if isinstance(inner, dict) else None
            return self._may(self._things.resource, uri)
        return True

    def _may(self, told: Callable[[object], SourceRef], name: object) -> bool:
        try:
            place = told(name)
        except Unresolved:
            return False
        if self._question is not None and place in self._question.places:
            return True
        return self._permits(place)

    def _known(self, tokens: Continuations, token: object) -> bool:
        """Whether what was issued may still be read."""
        if not isinstance(token, str):
            return False
        try:
            return all(map(self._permits, tokens.sources_of(token, self._who)))
        except Unresolved:
            return False

    def _leave_out(self, count: int) -> None:
        if count:
            self._withheld += count
            self._changed = True

    def _refuse(self, message: dict[str, Any], why: str) -> None:
        """The agent waits for an answer, so it gets one."""
        del message["result"]
        message["error"] = {"code": DENIED, "message": why}
        self._leave_out(1)


def asked_token(session: str, identity: str | int) -> str:
    """How a request is told from others: ids are unique in a session, and `1` is not `"1"`."""
    return f"{session} {orjson.dumps(identity).decode()}"


def _same(one: str | int, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _nested(node: Any) -> bool:
    return isinstance(node, dict | list)
