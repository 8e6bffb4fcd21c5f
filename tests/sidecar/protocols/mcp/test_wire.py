"""Which messages pass, in both directions, on the wire: the traps that the SDK doesn't walk
into."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.sidecar.protocols.mcp.wire import (
    MODERN,
    VERSION_KEY,
    Said,
    Wire,
    heads,
    modern,
    plain,
    request,
    told,
    wired,
)
from tests.sidecar.proxy.raw_client import Answered, ask, get

CALL = {"name": "open", "arguments": {"region": "west", "count": 42, "deep": {"on": True}}}
UNREADABLE = [("DENY", "unreadable_request", "mcp://kb")]


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    async with wired(tmp_path) as made:
        yield made


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
async def test_in_older_versions_such_headers_mean_nothing(wire: Wire, version: str | None) -> None:
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


async def test_a_posted_response_belongs_to_older_versions(wire: Wire) -> None:
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
async def test_what_two_parsers_could_read_differently_is_refused(
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
    assert answered.json["error"]["code"] == -32001
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


async def test_one_path_is_open_and_no_other(wire: Wire) -> None:
    for line in ("GET /", "GET /mcp/", "GET /sse", "PUT /mcp", "HEAD /mcp", "OPTIONS /mcp"):
        method, target = line.split(" ")
        answered = await _asked(wire, method, target)
        assert answered == 403, line
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


async def test_an_answer_of_which_all_may_be_seen_is_the_servers_byte_for_byte(wire: Wire) -> None:
    said = b'{ "id":1, "result" : {"tools":[ {"name":"open"} ] , "x":1.50}, "jsonrpc":"2.0"}\n'
    wire.says = lambda asked: said
    assert (await wire.call("tools/list", {})).body == said


@pytest.mark.parametrize(
    "said",
    [
        b"no json",
        b"[]",
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":{"tools":{"name":"shut"}}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"tools":["shut"]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"result":{"tools":[{"name":"shut"}]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"shut"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":' + b"[" * 500 + b"]" * 500 + b"}}",
    ],
)
async def test_an_unreadable_response_is_withheld(wire: Wire, said: bytes) -> None:
    wire.says = lambda asked: said
    answered = await wire.call("tools/list", {})
    assert answered.status == 502
    assert b"shut" not in answered.raw


async def test_only_known_messages_of_a_server_pass(wire: Wire) -> None:
    def note(name: str, params: Said) -> Said:
        return {"jsonrpc": "2.0", "method": name, "params": params}

    passing = [
        note("notifications/progress", {"progressToken": 1, "progress": 1}),
        note("notifications/message", {"level": "info", "data": "x"}),
        note("notifications/resources/updated", {"uri": "file:///open/a"}),
        note("notifications/tools/list_changed", {}),
        request("sampling/createMessage", {"messages": [], "maxTokens": 1}, "s1"),
        request("elicitation/create", {"message": "?"}, "s2"),
        request("roots/list", None, 3),
        request("ping", None, 4),
    ]
    wire.says = lambda asked: [
        passing[0],
        note("notifications/resources/updated", {"uri": "file:///shut/a"}),
        note("notifications/resources/updated", {"uri": "file:///open/../shut/a"}),
        note("notifications/resources/updated", {}),
        note("notifications/tasks", {"taskId": "t", "result": "shut"}),
        note("notifications/news", {"text": "shut"}),
        request("shell/run", {"text": "shut"}, 5),
        *passing[1:],
        {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}},
    ]
    answered = await wire.call("tools/call", CALL)
    assert told(answered)[:-1] == passing
    assert told(answered)[-1]["result"] == {"content": []}
    assert b"shut" not in plain(answered)
    [lineage] = await wire.sidecar.lineage()
    assert lineage["detail"]["withheld"] == 6


async def test_a_stream_that_can_not_be_read_breaks_off(wire: Wire) -> None:
    wire.says = lambda asked: [request("ping", None, 9), "shut", request("ping", None, 10)]
    answered = await wire.call("tools/call", CALL)
    assert b"shut" not in answered.raw
    assert not answered.raw.endswith(b"0\r\n\r\n")


async def test_a_resource_outside_a_list_withholds_its_result(wire: Wire) -> None:
    link = {"type": "resource_link", "uri": "file:///shut/a", "name": "shut"}
    wire.says = lambda asked: {"content": [], "structuredContent": {"link": link}}
    answered = await wire.call("tools/call", CALL)
    assert answered.json["error"]["code"] == -32001
    assert b"file" not in answered.body
    # Inside a list it is removed, together with the message that holds it.
    messages = [{"role": "user", "content": each} for each in (link, {"type": "text", "text": "a"})]
    wire.says = lambda asked: {"messages": messages}
    answered = await wire.call("prompts/get", {"name": "open"})
    assert answered.json["result"] == {"messages": messages[1:]}


async def test_contents_of_other_resources_are_judged_as_themselves(wire: Wire) -> None:
    uris = ["file:///open/a", "file:///shut/a", "file:///open/b", "file:///open/%2e%2e/shut", None]
    wire.says = lambda asked: {
        "contents": [{"uri": uri, "text": str(uri)} for uri in uris],
        "cacheScope": "public",
    }
    answered = await wire.call("resources/read", {"uri": "file:///open/a"})
    result = answered.json["result"]
    assert [each["uri"] for each in result["contents"]] == ["file:///open/a", "file:///open/b"]
    assert result["cacheScope"] == "private"


async def test_a_subscription_needs_every_resource_that_it_names(wire: Wire) -> None:
    for uris, passes in ((["file:///open/a"], True), (["file:///open/a", "file:///shut/b"], False)):
        message = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
        answered = await wire.post(message, *heads("subscriptions/listen"))
        assert ("result" in answered.json) is passes
    for uri, passes in (("file:///open/a", True), ("file:///shut/b", False)):
        assert ("result" in (await wire.call("resources/subscribe", {"uri": uri})).json) is passes
    for params in ({}, {"notifications": {"resourceSubscriptions": "file:///open/a"}}):
        answered = await wire.post(
            modern("subscriptions/listen", params), *heads("subscriptions/listen")
        )
        assert answered.json["error"]["code"] == -32001
    assert len(wire.arrived) == 2


@pytest.mark.parametrize("shape", ["task", "flat"])
async def test_a_task_stands_for_what_it_was_made_for(wire: Wire, shape: str) -> None:
    task = {"taskId": "t-1", "status": "working"}
    wire.says = lambda asked: {"task": task} if shape == "task" else {"resultType": "task", **task}
    await wire.call("tools/call", CALL)
    wire.says = lambda asked: {"content": [{"type": "text", "text": "done"}]}
    for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/update"):
        assert "result" in (await wire.call(method, {"taskId": "t-1"})).json
        for params in ({"taskId": "t-2"}, {}, {"taskId": 1}):
            assert (await wire.call(method, params)).json["error"]["code"] == -32001
        other = await wire.call(method, {"taskId": "t-1"}, "X-Sluice-User: eve")
        assert other.json["error"]["code"] == -32001
    wire.says = lambda asked: {"tasks": [task, {**task, "taskId": "t-2"}]}
    assert (await wire.call("tasks/list", {})).json["result"] == {"tasks": [task]}
    allowed = [each for each in await wire.sidecar.decisions() if each[0] == "ALLOW"]
    assert {each[2] for each in allowed} == {"mcp://kb/tool/open"}
    assert len(allowed) == 5


async def test_a_tasks_result_goes_to_its_owner(wire: Wire) -> None:
    wire.says = lambda asked: {"resultType": "task", "taskId": "t-1"}
    await wire.call("tools/call", CALL)
    link = {"type": "resource_link", "uri": "file:///shut/a", "name": "shut"}
    done = {"taskId": "t-1", "status": "completed", "result": {"content": [link]}}
    note = {"jsonrpc": "2.0", "method": "notifications/tasks", "params": done}
    wire.says = lambda asked: [note]
    message = modern("subscriptions/listen", {"notifications": {"taskIds": ["t-1"]}})
    [heard] = told(await wire.post(message, *heads("subscriptions/listen")))
    assert heard["params"]["result"] == {"content": []}
    other = modern("subscriptions/listen", {"notifications": {}})
    answered = await wire.post(other, *heads("subscriptions/listen"), "X-Sluice-User: eve")
    assert told(answered) == []


async def test_a_request_state_is_judged_for_what_it_was_issued_for(wire: Wire) -> None:
    wire.says = lambda asked: {"resultType": "input_required", "requestState": "s-1"}
    await wire.call("prompts/get", {"name": "open_one"})
    again = await wire.call("tools/call", {**CALL, "requestState": "s-1"}, id_=2)
    assert "result" in again.json
    for state in ("s-2", "", 7):
        refused = await wire.call("tools/call", {**CALL, "requestState": state}, id_=3)
        assert refused.json["error"]["code"] == -32001
    sources = [each[2] for each in await wire.sidecar.decisions()]
    assert sources[:3] == ["mcp://kb/prompt/open_one", "mcp://kb/tool/open", sources[0]]


async def test_a_replayed_message_is_judged_again(wire: Wire) -> None:
    wire.says = lambda asked: [request("ping", None, 9)]
    await wire.call("tools/call", CALL, "Mcp-Session-Id: s", id_="a")
    await wire.call("tools/call", CALL, "Mcp-Session-Id: s", id_=2)
    result = {"content": [{"type": "text", "text": "the text"}]}

    def again(identity: Any) -> Said:
        return {"jsonrpc": "2.0", "id": identity, "result": result}

    # Lists are filtered; an empty result reveals nothing.
    lists = {"tools": [{"name": "open"}, {"name": "shut"}]}
    wire.says = lambda asked: [
        again("a"),
        again(2),
        again("2"),
        again(3),
        {**again(4), "result": lists},
        {**again(5), "result": {}},
    ]
    for fields, passing in (
        (["Mcp-Session-Id: s"], ["a", 2]),
        (["Mcp-Session-Id: other"], []),
        ([], []),
        (["Mcp-Session-Id: s", "X-Sluice-User: eve"], []),
    ):
        answered = await _resumed(wire, *fields, "Last-Event-ID: 7")
        *results, listed, empty = told(answered)
        assert [each["id"] for each in results if "result" in each] == passing
        refused = [each for each in results if "error" in each]
        assert {each["error"]["code"] for each in refused} == {-32001}
        assert listed["result"] == {"tools": [{"name": "open"}]}
        assert empty["result"] == {}


async def _resumed(wire: Wire, *fields: str) -> Answered:
    return await ask(wire.port, get("/mcp", "Accept: text/event-stream", *fields))


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
