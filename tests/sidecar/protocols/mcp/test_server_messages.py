"""Which messages of a server pass, and what is cut from them."""

import pytest

from tests.sidecar.protocols.mcp.wire import (
    CALL,
    Said,
    Wire,
    plain,
    request,
    streamed_messages,
)


async def test_an_answer_without_hidden_parts_is_the_server_s_byte_for_byte(wire: Wire) -> None:
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
    assert streamed_messages(answered)[:-1] == passing
    assert streamed_messages(answered)[-1]["result"] == {"content": []}
    assert b"shut" not in plain(answered)
    [lineage] = await wire.sidecar.lineage()
    assert lineage["detail"]["withheld"] == 6


async def test_an_unreadable_stream_is_broken_off(wire: Wire) -> None:
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
