"""Which messages of an agent pass, on the wire: the traps that the SDK doesn't walk into."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.sidecar.protocols.mcp.wire import (
    CALL,
    MODERN,
    VERSION_KEY,
    Said,
    Wire,
    heads,
    modern,
    request,
    wired,
)
from tests.sidecar.proxy.raw_client import ask, get

UNREADABLE = [("DENY", "unreadable_request", "mcp://kb")]


def encoded(text: str) -> str:
    return f"=?base64?{b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    "fields",
    [
        heads("tools/call", "open"),
        heads("tools/call", encoded("open")),
        [*heads("tools/call", "open"), "Mcp-Param-Region: west", "Mcp-Param-Count: 42.0"],
        [*heads("tools/call", "open"), f"Mcp-Param-Region: {encoded('west')}"],
        [*heads("tools/call", "open"), "mcp-param-on: true"],
        ["mcp-protocol-version:  2026-07-28 ", "MCP-METHOD: tools/call", "mcp-name:open"],
    ],
)
async def test_a_header_that_agrees_with_the_body_passes(wire: Wire, fields: list[str]) -> None:
    answered = await wire.post(modern("tools/call", CALL), *fields)
    assert (answered.status, answered.json["id"]) == (200, 1)
    assert "result" in answered.json
    assert await wire.sidecar.decisions() == [("ALLOW", "analysts-read", "mcp://kb/tool/open")]
    # Byte for byte what was judged.
    assert wire.upstream.seen[0].body == orjson.dumps(modern("tools/call", CALL))


@pytest.mark.parametrize(
    "fields",
    [
        heads("tools/call", "open_other"),
        heads("tools/call", "shut"),
        heads("tools/call"),
        heads("tools/list", "open"),
        heads("Tools/Call", "open"),
        heads("tools/call", "open")[:1],
        heads("tools/call", "open")[1:],
        heads("tools/call", "open", "2025-11-25"),
        [*heads("tools/call", "open"), "Mcp-Name: shut"],
        [*heads("tools/call", "open"), "Mcp-Name: open"],
        [*heads("tools/call", "open"), "mcp_name: shut"],
        [*heads("tools/call", "open"), "MCP-Protocol-Version: 2026-07-28"],
        [*heads("tools/call", "open"), "Mcp-Session-Id: a", "Mcp-Session-Id: b"],
        heads("tools/call", encoded("shut")),
        heads("tools/call", encoded("open").replace("base64", "BASE64")),
        heads("tools/call", "=?base64?b3Blbg?="),
        heads("tools/call", "=?base64?/w==?="),
        heads("tools/call", "=?base64?§?="),
        [*heads("tools/call", "open"), "Mcp-Param-Region: east"],
        [*heads("tools/call", "open"), "Mcp-Param-Region: west", "Mcp-Param-Region: west"],
        [*heads("tools/call", "open"), "Mcp-Param-Count: 43"],
    ],
)
async def test_a_header_that_disagrees_is_refused(wire: Wire, fields: list[str]) -> None:
    answered = await wire.post(modern("tools/call", CALL), *fields)
    assert answered.status == 400
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert answered.json["id"] == 1
    error = answered.json["error"]
    assert error["code"] == -32020
    assert error["data"]["policy_name"] == "unreadable_request"
    assert wire.arrived == []
    assert await wire.sidecar.decisions() == UNREADABLE


@pytest.mark.parametrize("version", [None, "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_such_headers_are_ignored_in_older_versions(wire: Wire, version: str | None) -> None:
    stated = heads("prompts/get", "open", version or "")[1 if version is None else 0 :]
    denied = await wire.call("tools/call", {"name": "shut"}, *stated)
    assert denied.json["error"]["code"] == -32001
    stated = heads("prompts/get", "shut", version or "")[1 if version is None else 0 :]
    allowed = await wire.call("tools/call", {"name": "open"}, *stated)
    assert "result" in allowed.json
    assert [each["params"]["name"] for each in wire.arrived] == ["open"]


async def test_an_unknown_version_is_answered_with_the_known_ones(wire: Wire) -> None:
    fields = heads("tools/call", "open", "2031-01-01")
    answered = await wire.post(modern("tools/call", CALL, "2031-01-01"), *fields)
    error = answered.json["error"]
    assert (answered.status, error["code"]) == (400, -32022)
    assert error["data"]["supported"][0] == MODERN
    assert error["data"]["requested"] == "2031-01-01"
    assert error["data"]["decision"] == "DENY"
    assert wire.arrived == []
    assert await wire.sidecar.decisions() == UNREADABLE


async def test_a_posted_response_is_accepted_only_in_older_versions(wire: Wire) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "result": {"action": "accept"}}
    assert (await wire.post(message, "MCP-Protocol-Version: 2025-11-25")).status == 202
    refused = await wire.post(message, f"MCP-Protocol-Version: {MODERN}")
    assert (refused.status, refused.json["error"]["code"]) == (400, -32600)
    assert len(wire.arrived) == 1


@pytest.mark.parametrize("version", [[], heads("tools/call", "open")])
@pytest.mark.parametrize(
    "raw",
    [
        # Batches, which versions up to 2025-03-26 allowed.
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b"[]",
        b"",
        b"null",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"open"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"open"}}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":["ping"]}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["open"]}',
        # Keys that occur twice, at least for some parser.
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"shut"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"shut"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"open","name":"shut"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"open","NAME":"shut"}}',
        '{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"paramſ":{"name":"shut"}}'.encode(),
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"open","\\u006eame":"shut"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"ref":{"name":"open","Name":"shut"}}}',
    ],
)
async def test_a_message_that_two_parsers_could_read_differently_is_refused(
    wire: Wire, raw: bytes, version: list[str]
) -> None:
    answered = await wire.post(None, *version, raw=raw)
    assert answered.status == 400
    assert answered.json["jsonrpc"] == "2.0"
    assert answered.json["error"]["data"]["policy_name"] == "unreadable_request"
    assert wire.upstream.seen == []
    assert await wire.sidecar.decisions() == UNREADABLE


@pytest.mark.parametrize(
    "method",
    [
        "tools/destroy",
        "Tools/call",
        "tools/call ",
        "resources/write",
        "sampling/createMessage",
        "notifications/cancelled",
        "rpc.discover",
        "",
    ],
)
async def test_an_unknown_method_is_denied(wire: Wire, method: str) -> None:
    answered = await wire.call(method, {"name": "open"})
    assert answered.status == 200
    assert answered.json["error"]["code"] == -32601
    assert wire.upstream.seen == []
    assert await wire.sidecar.decisions() == [("DENY", "unclassified_route", "mcp://kb")]


async def test_only_requests_get_a_json_rpc_response(wire: Wire) -> None:
    answered = await wire.post({"jsonrpc": "2.0", "method": "notifications/other"})
    assert answered.status == 403
    assert answered.json["decision"]["policy_name"] == "unclassified_route"
    # A call without an id: it expects no response, and it must not happen either.
    answered = await wire.post({"jsonrpc": "2.0", "method": "tools/call", "params": CALL})
    assert answered.status == 403
    assert wire.upstream.seen == []


async def test_only_the_endpoint_is_open(wire: Wire) -> None:
    for line in ("GET /", "GET /mcp/", "GET /sse", "PUT /mcp", "HEAD /mcp", "OPTIONS /mcp"):
        method, target = line.split(" ")
        answered = await _asked(wire, method, target)
        assert answered == (403 if target != "/mcp" else 405), line
    assert wire.upstream.seen == []
    assert {each[1] for each in await wire.sidecar.decisions()} == {"unclassified_route"}
    assert await _asked(wire, "DELETE", "/mcp") == 202
    assert await _asked(wire, "GET", "/mcp") == 202


async def _asked(wire: Wire, method: str, target: str) -> int:
    return (await ask(wire.port, get(target).replace(b"GET", method.encode(), 1))).status


async def test_the_endpoint_and_the_arguments_are_the_configurations(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"endpoint": "/api/mcp", "arguments": {"open_find": "in"}}
    async with wired(tmp_path, **changes) as wire:
        assert (await wire.call("ping", None)).status == 403
        denied = 0
        values: list[Any] = ["open", ["open", "open_too"], ["open", "shut"], "shut", [], None, 5]
        for value in (*values, {}):
            message = request("tools/call", {"name": "open_find", "arguments": {"in": value}})
            data = orjson.dumps(message)
            line = b"POST /api/mcp HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n"
            line += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data)
            answered = await _raw(wire, line + data)
            denied += "error" in answered
        assert denied == 6
        arguments = [each["params"]["arguments"]["in"] for each in wire.arrived]
        assert arguments == ["open", ["open", "open_too"]]


async def _raw(wire: Wire, data: bytes) -> Said:
    found: Said = (await ask(wire.port, data)).json
    return found


async def test_with_marked_documents_every_retrieval_is_judged_at_the_highest_level(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path, sensitivity_field="acl.level") as wire:
        answered = await wire.call("tools/call", CALL)
        assert answered.json["error"]["code"] == -32001
        assert "critical" in answered.json["error"]["message"]
        assert wire.arrived == []


async def test_a_version_only_in_the_body_is_a_disagreement(wire: Wire) -> None:
    message = request("tools/call", {**CALL, "_meta": {VERSION_KEY: 7}})
    answered = await wire.post(message, *heads("tools/call", "open"))
    assert answered.json["error"]["code"] == -32020
    assert wire.arrived == []
