"""Subscriptions, tasks, request states and replayed messages are judged by what they stand for."""

from typing import Any

import pytest

from tests.sidecar.protocols.mcp.wire import (
    CALL,
    Said,
    Wire,
    heads,
    modern,
    request,
    streamed_messages,
)
from tests.sidecar.proxy.raw_client import Answered, ask, get


async def test_a_subscription_needs_every_named_resource(wire: Wire) -> None:
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
async def test_a_task_is_judged_as_the_call_that_made_it(wire: Wire, shape: str) -> None:
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


async def test_a_task_s_result_is_sent_only_to_its_owner(wire: Wire) -> None:
    wire.says = lambda asked: {"resultType": "task", "taskId": "t-1"}
    await wire.call("tools/call", CALL)
    link = {"type": "resource_link", "uri": "file:///shut/a", "name": "shut"}
    done = {"taskId": "t-1", "status": "completed", "result": {"content": [link]}}
    note = {"jsonrpc": "2.0", "method": "notifications/tasks", "params": done}
    wire.says = lambda asked: [note]
    message = modern("subscriptions/listen", {"notifications": {"taskIds": ["t-1"]}})
    [heard] = streamed_messages(await wire.post(message, *heads("subscriptions/listen")))
    assert heard["params"]["result"] == {"content": []}
    other = modern("subscriptions/listen", {"notifications": {}})
    answered = await wire.post(other, *heads("subscriptions/listen"), "X-Sluice-User: eve")
    assert streamed_messages(answered) == []


async def test_a_request_state_is_judged_as_the_request_that_got_it(wire: Wire) -> None:
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
        *results, listed, empty = streamed_messages(answered)
        assert [each["id"] for each in results if "result" in each] == passing
        refused = [each for each in results if "error" in each]
        assert {each["error"]["code"] for each in refused} == {-32001}
        assert listed["result"] == {"tools": [{"name": "open"}]}
        assert empty["result"] == {}


async def _resumed(wire: Wire, *fields: str) -> Answered:
    return await ask(wire.port, get("/mcp", "Accept: text/event-stream", *fields))
