"""An MCP server with the tools, resources and prompts that the scenarios of MCP's conformance suite
ask a server for."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from starlette.types import ASGIApp

from tests.sidecar.protocols.mcp.server import Kept

Block = dict[str, Any]
Tool = Callable[[Any, dict[str, Any]], Awaitable[list[Block]]]

# One pixel, and one sample.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {
        "type": "string",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "default": True},
}
_TITLED = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in ((1, "A"), (2, "B"))]
_NAMES = ["option1", "option2", "option3"]
ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": _NAMES},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _NAMES}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}


def text(value: str) -> Block:
    return {"type": "text", "text": value}


IMAGE: Block = {"type": "image", "data": PNG, "mimeType": "image/png"}
EMBEDDED: Block = {
    "type": "resource",
    "resource": {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    },
}


def always(*blocks: Block) -> Tool:
    """A tool whose result is always the same."""

    async def call(_context: Any, _arguments: dict[str, Any]) -> list[Block]:
        return list(blocks)

    return call


async def logs(context: Any, _arguments: dict[str, Any]) -> list[Block]:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", said, None, context.request_id)
    return [text("logged")]


async def progresses(context: Any, _arguments: dict[str, Any]) -> list[Block]:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
    return [text("done")]


async def fails(_context: Any, _arguments: dict[str, Any]) -> list[Block]:
    raise ValueError("This tool intentionally returns an error for testing")


async def samples(context: Any, arguments: dict[str, Any]) -> list[Block]:
    message = types.SamplingMessage.model_validate(
        {
            "role": "user",
            "content": text(arguments["prompt"]),
        }
    )
    result = await context.session.create_message(
        [message], max_tokens=100, related_request_id=context.request_id
    )
    return [text(f"LLM response: {result.content.text}")]


def asks(properties: dict[str, Any] | None = None) -> Tool:
    """A tool that asks the user for these properties."""

    async def call(context: Any, arguments: dict[str, Any]) -> list[Block]:
        wanted = properties or {"username": {"type": "string"}, "email": {"type": "string"}}
        schema = {"type": "object", "properties": wanted, "required": []}
        message = arguments.get("message", "Please answer")
        found = await context.session.elicit_form(message, schema, context.request_id)
        return [text(f"Elicitation completed: action={found.action}, content={found.content}")]

    return call


async def reconnects(context: Any, _arguments: dict[str, Any]) -> list[Block]:
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    return [text("here it is")]


TOOLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "test_simple_text": (
        always(text("This is a simple text response for testing.")),
        NO_ARGUMENTS,
    ),
    "test_image_content": (always(IMAGE), NO_ARGUMENTS),
    "test_audio_content": (
        always({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
        NO_ARGUMENTS,
    ),
    "test_embedded_resource": (always(EMBEDDED), NO_ARGUMENTS),
    "test_multiple_content_types": (
        always(text("Multiple content types test:"), IMAGE, EMBEDDED),
        NO_ARGUMENTS,
    ),
    "test_tool_with_logging": (logs, NO_ARGUMENTS),
    "test_tool_with_progress": (progresses, NO_ARGUMENTS),
    "test_error_handling": (fails, NO_ARGUMENTS),
    "test_sampling": (
        samples,
        {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    ),
    "test_elicitation": (
        asks(),
        {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    ),
    "test_elicitation_sep1034_defaults": (asks(DEFAULTS), NO_ARGUMENTS),
    "test_elicitation_sep1330_enums": (asks(ENUMS), NO_ARGUMENTS),
    "test_reconnection": (reconnects, NO_ARGUMENTS),
    "json_schema_2020_12_tool": (always(text("fine")), SCHEMA_2020_12),
}
RESOURCES: dict[str, Block] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}
PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult.model_validate(
        {
            "tools": [
                {"name": name, "description": name, "inputSchema": schema}
                for name, (_, schema) in TOOLS.items()
            ]
        }
    )


async def call_tool(context: Any, params: Any) -> types.CallToolResult:
    try:
        content = await TOOLS[params.name][0](context, params.arguments or {})
    except ValueError as error:
        return types.CallToolResult.model_validate(
            {
                "content": [text(str(error))],
                "isError": True,
            }
        )
    return types.CallToolResult.model_validate({"content": content})


async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult.model_validate(
        {
            "resources": [
                {"uri": uri, "name": uri, "description": uri, "mimeType": each["mimeType"]}
                for uri, each in RESOURCES.items()
            ]
        }
    )


async def list_templates(_context: Any, _params: Any) -> types.ListResourceTemplatesResult:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template"}
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": [template]})


async def read_resource(_context: Any, params: Any) -> types.ReadResourceResult:
    uri = str(params.uri)
    found = RESOURCES.get(uri)
    if uri.startswith("test://template/"):
        number = uri.split("/")[3]
        said = f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'
        found = {"mimeType": "application/json", "text": said}
    if found is None:
        raise MCPError(code=-32002, message="no such resource")
    return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, **found}]})


async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult.model_validate(
        {
            "prompts": [
                {
                    "name": name,
                    "description": name,
                    "arguments": [
                        {"name": each, "description": each, "required": True} for each in arguments
                    ],
                }
                for name, arguments in PROMPTS.items()
            ]
        }
    )


async def get_prompt(_context: Any, params: Any) -> types.GetPromptResult:
    given = params.arguments or {}
    content = [text("This is a simple prompt for testing.")]
    if params.name == "test_prompt_with_arguments":
        said = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
        content = [text(said)]
    elif params.name == "test_prompt_with_embedded_resource":
        resource = {**EMBEDDED["resource"], "uri": given["resourceUri"]}
        content = [{**EMBEDDED, "resource": resource}, text("Please process this.")]
    elif params.name == "test_prompt_with_image":
        content = [IMAGE, text("Please analyze the image above.")]
    messages = [{"role": "user", "content": each} for each in content]
    return types.GetPromptResult.model_validate({"messages": messages})


async def complete(_context: Any, _params: Any) -> types.CompleteResult:
    return types.CompleteResult.model_validate({"completion": {"values": ["paris", "park"]}})


async def nothing(_context: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def app() -> ASGIApp:
    """The server, which knows nothing of sidecars."""
    server = Server[Any](
        "conformance",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=nothing,
    )
    return server.streamable_http_app(event_store=Kept(), retry_interval=50)
