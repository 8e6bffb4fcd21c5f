"""Filters an MCP server's messages (`protocols/RULES.md`, MCP). If a message doesn't name its own
source, the source follows from the request, task or result that it refers to, which the sidecar has
remembered (R5). `Visibility.permits` decides about each message anew. A message that needs no
change is passed byte for byte."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.protocols.mcp.headers import DENIED, ServerVersions
from sidecar.protocols.mcp.messages import (
    FILTERED_MEMBERS,
    LIST_RESULT,
    SERVER_NOTIFICATIONS,
    SERVER_REQUESTS,
    TASK_NOTIFICATIONS,
    McpObjects,
    params_of,
)
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardedPart,
    SourceRef,
    Sources,
    Unresolved,
    Visibility,
)
from sidecar.protocols.shared.caches import Continuations
from sidecar.protocols.shared.responses import to_json
from sidecar.protocols.strict_body import json_object

_MAX_DEPTH = 100


class Tokens(NamedTuple):
    """The tokens that the server issued through this sidecar, by kind. Each token stands for the
    sources of the request that it was issued for (R5)."""

    calls: Continuations
    """Calls, by session and JSON-RPC id, whose response may arrive on another stream."""
    tasks: Continuations
    states: Continuations
    """The `requestState` of results that ask the client for more input."""


class AllowedCall(NamedTuple):
    """The call that a response answers: its JSON-RPC id (`identity`), and the sources for which it
    was allowed."""

    identity: str | int
    sources: Sources


def call_token(session: str, identity: str | int) -> str:
    """Return the token under which a call is remembered. JSON-RPC ids are unique within a session,
    and the id `1` differs from `"1"`."""
    # JSON escapes quotes, and a number holds no space, so the two parts can't run together.
    return f"{session} {orjson.dumps(identity).decode()}"


@dataclass(slots=True)
class ResponseFilter:
    objects: McpObjects
    tokens: Tokens
    visibility: Visibility
    attribution: Attribution
    session: str | None
    call: AllowedCall | None = None
    versions: ServerVersions = field(default_factory=ServerVersions)
    _withheld: int = field(default=0, init=False)
    _changed: bool = field(default=False, init=False)

    def filter_response(self, response: FetchedResponse) -> ForwardedPart:
        """Filter a response that is not an event stream. The response to a notification is empty.
        Raises `UpstreamFailed`."""
        passed = self.filter_message(response.body)
        if passed is None:
            raise UpstreamFailed("the data source's response is not a JSON-RPC response")
        return passed

    def filter_message(self, data: bytes) -> ForwardedPart | None:
        """Return one message as the agent may see it; None if it is withheld. Raises
        `UpstreamFailed` if it isn't a JSON-RPC message."""
        # Empty: the response to a notification, or an event that only keeps the connection open.
        if not data.strip():
            return ForwardedPart(data)
        try:
            message = json_object(data, None)
        except Malformed as error:
            raise UpstreamFailed("the data source sent something that is not JSON-RPC") from error
        self._withheld, self._changed = 0, False
        kinds = [kind for kind in ("method", "result", "error") if kind in message]
        if len(kinds) != 1:
            raise UpstreamFailed("the data source sent something that is not JSON-RPC")
        # Dropped silently: the server sent it unasked, so an error would answer no request.
        if kinds == ["method"] and not self._may_send(message):
            return None
        if kinds == ["result"]:
            self._filter_result(message)
        return ForwardedPart(to_json(message) if self._changed else data, self._withheld)

    def _may_send(self, message: dict[str, Any]) -> bool:
        method, params = message["method"], params_of(message)
        if not isinstance(method, str) or not isinstance(params, dict):
            return False
        if method in self.objects.vendors:
            return self._may_see(self.objects.vendor, method) and self._withhold_resources(params)
        if "id" in message:
            return method in SERVER_REQUESTS and self._withhold_resources(params)
        if method == "notifications/resources/updated":
            return self._may_see(self.objects.resource, params.get("uri"))
        if method in TASK_NOTIFICATIONS:
            seen = self._may_see_token(self.tokens.tasks, params.get("taskId"))
            return seen and self._withhold_resources(params)
        return method in SERVER_NOTIFICATIONS and self._withhold_resources(params)

    def _filter_result(self, message: dict[str, Any]) -> None:
        result, identity = message["result"], message.get("id")
        if not isinstance(result, dict):
            raise UpstreamFailed("the data source's result is not an object")
        call = self.call
        # `1`, `"1"`, `1.0` and `True` are different ids, though Python finds three of them equal.
        if call is not None and (type(call.identity), call.identity) == (type(identity), identity):
            self._remember(result, call.sources)
        elif not result.keys() <= LIST_RESULT and not self._call_from_session(identity, result):
            # A resumed stream replays earlier results: only those of this user's own calls pass.
            not_here = "the call of this result was not made here"
            self._refuse(message, f"{not_here}, or its sources are no longer allowed")
            return
        self._cut_versions(result)
        for key, may_see in self._list_checks():
            if key in result:
                result[key] = self._filter_list(result[key], may_see)
                # The list is now specific to this agent, so no shared cache may keep it.
                if result.get("cacheScope", "private") != "private":
                    result["cacheScope"] = "private"
                    self._changed = True
        rest = {key: value for key, value in result.items() if key not in FILTERED_MEMBERS}
        if not self._withhold_resources(rest):
            self._refuse(message, "the result holds a resource that the agent may not read")

    def _cut_versions(self, result: dict[str, Any]) -> None:
        """Remove the protocol versions that the sidecar can't judge from the result's
        `supportedVersions`."""
        listed = result.get("supportedVersions")
        if listed is not None and (known := self.versions.learn(listed)) != listed:
            result["supportedVersions"] = known
            self._changed = True

    def _call_from_session(self, identity: Any, result: dict[str, Any]) -> bool:
        """Return whether this result answers an earlier call of the same session, whose sources the
        policies still allow. Also remembers the tokens in the result."""
        if self.session is None or type(identity) not in (str, int):
            return False
        token = call_token(self.session, identity)
        if not self._may_see_token(self.tokens.calls, token):
            return False
        self._remember(result, self.tokens.calls.sources_of(token, self.attribution))
        return True

    # Called before the agent gets the message, since the agent may use a token at once.
    def _remember(self, result: dict[str, Any], sources: Sources) -> None:
        """Remember the tokens in this result with which the client continues: they stand for the
        same `sources`."""
        if not sources:
            return
        task = result.get("task")
        for issued in (result, task if isinstance(task, dict) else {}):
            if isinstance(issued.get("taskId"), str):
                self.tokens.tasks.remember(issued["taskId"], self.attribution, sources)
        if isinstance(result.get("requestState"), str):
            self.tokens.states.remember(result["requestState"], self.attribution, sources)

    def _list_checks(self) -> tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...]:
        objects, may_see = self.objects, self._may_see
        return (
            ("tools", lambda each: may_see(objects.tool, each.get("name"))),
            ("prompts", lambda each: may_see(objects.prompt, each.get("name"))),
            ("resources", lambda each: may_see(objects.resource, each.get("uri"))),
            ("resourceTemplates", lambda each: may_see(objects.resource, each.get("uriTemplate"))),
            ("contents", lambda each: may_see(objects.resource, each.get("uri"))),
            ("tasks", lambda each: self._may_see_token(self.tokens.tasks, each.get("taskId"))),
        )

    def _filter_list(self, elements: Any, may_see: Callable[[dict[str, Any]], bool]) -> list[Any]:
        # An element of another form can't be judged, so the whole message is withheld.
        if not isinstance(elements, list) or not all(isinstance(each, dict) for each in elements):
            raise UpstreamFailed("the data source's list must hold objects")
        kept = [each for each in elements if may_see(each)]
        self._count_withheld(len(elements) - len(kept))
        return kept

    def _withhold_resources(self, node: Any, depth: int = 0) -> bool:
        """Remove the resources that the agent may not read from every list in `node`, in place.
        Returns False if `node` itself is such a resource, or holds one outside a list, so that it
        can't be removed here."""
        if not isinstance(node, dict | list):
            return True
        # Bounds the recursion: Python's own stack allows about a thousand calls.
        if depth > _MAX_DEPTH:
            raise UpstreamFailed(f"the data source's response has more than {_MAX_DEPTH} levels")
        if isinstance(node, dict):
            below = (self._withhold_resources(each, depth + 1) for each in node.values())
            return self._may_see_block(node) and all(below)
        kept = [each for each in node if self._withhold_resources(each, depth + 1)]
        self._count_withheld(len(node) - len(kept))
        node[:] = kept
        return True

    def _may_see_block(self, node: dict[str, Any]) -> bool:
        """Return whether the agent may see the content block `node`. Only a block that holds or
        links a hidden resource is refused."""
        kind = node.get("type")
        if kind == "resource_link":
            return self._may_see(self.objects.resource, node.get("uri"))
        if kind == "resource" and "resource" in node:
            inner = node["resource"]
            uri = inner.get("uri") if isinstance(inner, dict) else None
            return self._may_see(self.objects.resource, uri)
        return True

    def _may_see(self, source_of: Callable[[object], SourceRef], name: object) -> bool:
        try:
            source = source_of(name)
        except Unresolved:
            # Without a source, no policy can be asked, so the element is withheld.
            return False
        # Already allowed and recorded, for this very request.
        if self.call is not None and source in self.call.sources:
            return True
        return self.visibility.permits(source)

    def _may_see_token(self, tokens: Continuations, token: object) -> bool:
        """Return whether the policies still allow all sources that a token stands for. False for an
        unknown token."""
        if not isinstance(token, str):
            return False
        try:
            return all(map(self.visibility.permits, tokens.sources_of(token, self.attribution)))
        except Unresolved:
            # The token is unknown, or belongs to another user: this agent may not see it.
            return False

    def _count_withheld(self, count: int) -> None:
        if count:
            self._withheld += count
            self._changed = True

    def _refuse(self, message: dict[str, Any], why: str) -> None:
        """Replace the message's result with an error that says why, since the agent is waiting for
        a response."""
        del message["result"]
        message["error"] = {"code": DENIED, "message": why}
        self._count_withheld(1)
