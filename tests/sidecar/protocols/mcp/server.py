"""An MCP server built with the SDK, served over HTTP on its own thread: tools of different
sensitivity, resources, a template, prompts, and tools that make the server push messages.

It records every message that arrives: the access log that shows whether a denied request got
through.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import (
    CallToolResult,
    Completion,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    InputRequiredResult,
    JSONRPCMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HINT = CacheHint(ttl_ms=60_000, scope="public")


class Colour(BaseModel):
    """What a tool requests from the user."""

    colour: str


def made() -> MCPServer[Any]:
    """The server, which knows nothing of sidecars."""
    server: MCPServer[Any] = MCPServer(
        "library",
        log_level="CRITICAL",
        cache_hints={"tools/list": HINT, "resources/list": HINT, "resources/read": HINT},
    )
    _tools(server)
    _speaking_tools(server)
    _readable(server)
    return server


def _tools(server: MCPServer[Any]) -> None:
    @server.tool()
    def weather(city: str) -> str:
        return f"sunny in {city}"

    @server.tool()
    def contracts(query: str) -> dict[str, Any]:
        return {"found": [query, "§ 12"], "count": 2}

    @server.tool()
    def payroll(month: str) -> str:
        return f"salaries of {month}"

    @server.tool()
    def search(filter: dict[str, str]) -> str:  # noqa: A002  # a caller's word
        return f"rows of {filter['collection']}"

    @server.tool()
    def gathered() -> CallToolResult:
        content = [
            TextContent(type="text", text="two links, two texts"),
            ResourceLink(type="resource_link", name="a", uri="file:///docs/open.txt"),
            ResourceLink(type="resource_link", name="b", uri="file:///docs/shut.txt"),
            *(
                EmbeddedResource(
                    type="resource", resource=TextResourceContents(uri=uri, text=f"text of {uri}")
                )
                for uri in ("file:///docs/open.txt", "file:///docs/shut.txt")
            ),
        ]
        return CallToolResult(content=cast(Any, content))


def _speaking_tools(server: MCPServer[Any]) -> None:
    @server.tool()
    async def slow(steps: int, ctx: Context) -> str:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        return f"{steps} steps"

    @server.tool()
    async def later(ctx: Context) -> str:
        """Ends its stream before it is done, if the client can resume it, which takes an event
        id."""
        await asyncio.sleep(0.2)
        await ctx.close_sse_stream()
        await asyncio.sleep(0.1)
        return "here it is"

    @server.tool()
    async def asks(ctx: Context) -> str | InputRequiredResult:
        """Asks on its stream or, in newer versions, in its result."""
        if ctx.protocol_version != "2026-07-28":
            found = await ctx.elicit("which colour?", Colour)
            return f"painted {found.data.colour}" if found.action == "accept" else "not painted"
        if ctx.input_responses is None:
            asked = ElicitRequest(
                params=ElicitRequestFormParams(
                    message="which colour?", requested_schema=Colour.model_json_schema()
                )
            )
            return InputRequiredResult(input_requests={"c": asked}, request_state="half painted")
        answer = cast(Any, ctx.input_responses["c"])
        return f"painted {answer.content['colour']}, {ctx.request_state}"

    @server.tool()
    async def touch(ctx: Context) -> str:
        for uri in ("file:///docs/shut.txt", "file:///docs/open.txt"):
            await ctx.notify_resource_updated(uri)
            if ctx.protocol_version != "2026-07-28":
                await ctx.session.send_resource_updated(uri)
        return "touched"


def _readable(server: MCPServer[Any]) -> None:
    @server.resource("file:///docs/open.txt")
    def open_text() -> str:
        return "the open text"

    @server.resource("file:///docs/shut.txt")
    def shut_text() -> str:
        return "the shut text"

    @server.resource("note://open/{name}")
    def open_note(name: str) -> str:
        return f"open note {name}"

    @server.resource("note://shut/{name}")
    def shut_note(name: str) -> str:
        return f"shut note {name}"

    @server.prompt()
    def greet(name: str) -> str:
        return f"say hello to {name}"

    @server.prompt()
    def fire(name: str) -> str:
        return f"dismiss {name}"

    @server.completion()  # type: ignore[no-untyped-call,untyped-decorator]  # the SDK's own
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=["ada", "alan"])


@dataclass
class Served:
    """A running server; `arrived` holds the messages that it received, in order."""

    port: int
    whole: bool
    """Whether it answers in one piece, and not by a stream."""
    arrived: list[dict[str, Any]] = field(default_factory=list)
    resumed: int = 0
    """How often a stream was asked for from where it broke off."""

    def names(self, method: str) -> list[str]:
        """The names in the messages with this method."""
        params = [each["params"] for each in self.arrived if each.get("method") == method]
        return [each.get("name") or each.get("uri") for each in params]


class _Noting:
    """Records each posted body on its way to the server."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self._app = app
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        if any(name == b"last-event-id" for name, _ in scope.get("headers", ())):
            self._served.resumed += 1

        async def noted() -> Message:
            nonlocal body
            message = await receive()
            if message["type"] == "http.request":
                body += message.get("body", b"")
                if not message.get("more_body") and body:
                    self._served.arrived.append(json.loads(body))
                    body = b""
            return message

        await self._app(scope, noted, send)


class Kept(EventStore):
    """The events of every stream, for clients that resume one."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        last = int(last_event_id)
        stream = self._events[last][0]
        for place, (each, message) in enumerate(self._events):
            if place > last and each == stream and message is not None:
                await send_callback(EventMessage(message, str(place)))
        return stream


@contextmanager
def serving(*, json_response: bool) -> Iterator[Served]:
    """The server on a port that the system chooses, responding with JSON or with streams."""
    app = made().streamable_http_app(
        json_response=json_response,
        event_store=None if json_response else Kept(),
        retry_interval=50,
    )
    served = Served(0, json_response)
    with listening_server(cast(Any, _Noting(app, served))) as served.port:
        yield served


@contextmanager
def listening_server(app: ASGIApp) -> Iterator[int]:
    """The port of `app`, served on a thread of its own."""
    config = uvicorn.Config(cast(Any, app), host="127.0.0.1", port=0, log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        # expires on purpose
        thread.join(0.01)
        assert thread.is_alive()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)
