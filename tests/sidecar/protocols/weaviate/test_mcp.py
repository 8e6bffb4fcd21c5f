"""Weaviate's own MCP server. In front of a minimal server (`server.py`)."""

from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal


def call(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


async def test_a_tool_of_its_mcp_server_is_judged_by_its_collection(front: Minimal) -> None:
    message = call("weaviate-query-hybrid", query="x", collection_name="open", tenant_name="ours")
    assert (await front.ask("POST", "/v1/mcp", message)).json == {"done": True}
    message = call("weaviate-query-hybrid", query="x", collection_name="Shut")
    answered = await front.ask("POST", "/v1/mcp", message)
    assert answered.status == 200
    assert answered.json["id"] == 7
    assert answered.json["error"]["code"] == -32001
    assert answered.json["error"]["data"]["decision"] == "DENY"
    assert await front.sources() == [
        ("ALLOW", "weaviate://kb/Open/ours"), ("DENY", "weaviate://kb/Shut"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (call("weaviate-query-hybrid", query="x"), "unresolved_source"),
        (call("weaviate-query-hybrid", query="x", Collection_Name="Open"), "unreadable_request"),
        (call("weaviate-query-hybrid", collection_name="Open",
              filters={"path": ["next", "Shut", "a"]}), "analysts-read"),
        (call("weaviate-logs-fetch"), "unclassified_route"),
        (call("weaviate-objects-upsert", collection_name="Open"), "write_denied"),
        ({**call("weaviate-query-hybrid", collection_name="Open"), "Params": {}},
         "unreadable_request"),
        ({"jsonrpc": "2.0", "id": 7, "method": "resources/read"}, "unclassified_route"),
    ],
)  # fmt: skip
async def test_an_unclear_tool_call_is_not_forwarded(
    front: Minimal, message: Any, name: str
) -> None:
    answered = await front.ask("POST", "/v1/mcp", message)
    assert answered.json["error"]["data"]["policy_name"] == name
    assert "POST /v1/mcp" not in front.lines
    if name == "write_denied":
        assert await front.sources() == [("DENY", "weaviate://kb/Open")]


async def test_messages_about_no_collection_pass(front: Minimal) -> None:
    assert (await front.ask("GET", "/v1/meta")).status == 200
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert (await front.ask("POST", "/v1/mcp", message)).status == 200
    assert await front.sources() == []
