"""The SDK's client, with only the port changed, and the SDK's server: over both versions of the
transport, with responses in one piece and as streams."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.mcp.server import Served, serving
from tests.support.proxy import Sidecar, listening, policy, sidecar, source

OLD, NEW = "legacy", "2026-07-28"

ALLOWED = policy(
    allowed_sources=(
        "mcp://kb/tool/*",
        "mcp://kb/resource/file:///docs/open*",
        "mcp://kb/resource/note://open/*",
        "mcp://kb/prompt/greet",
        "mcp://kb/data/open*",
    )
)
NAMES = {
    "mcp://kb/tool/weather": NamedSource("mcp://kb/tool/weather", "low"),
    "mcp://kb/tool/contracts": NamedSource("mcp://kb/tool/contracts", "high"),
    "mcp://kb/tool/payroll": NamedSource("mcp://kb/tool/payroll", "critical"),
}


@dataclass
class Front:
    """A sidecar in front of the server, and the address of its endpoint."""

    url: str
    server: Served
    sidecar: Sidecar
    mode: str

    def client(self, **more: Any) -> Client:
        return Client(self.url, mode=self.mode, read_timeout_seconds=10, **more)


def text_of(block: Any) -> str:
    """The text of a block that must be one of text."""
    text: str = block.text
    return text


@pytest.fixture(scope="module", params=[True, False], ids=["json", "stream"])
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(json_response=request.param) as served:
        yield served


@pytest.fixture(params=[OLD, NEW])
async def front(
    request: pytest.FixtureRequest, server: Served, tmp_path: Path
) -> AsyncIterator[Front]:
    server.arrived.clear()
    server.resumed = 0
    configured = replace(
        source(server.port, "mcp"), names=NAMES, arguments={"search": "filter.collection"}
    )
    async with (
        sidecar(tmp_path, ALLOWED) as made,
        listening(made, configured) as port,
    ):
        yield Front(f"http://127.0.0.1:{port}/mcp", server, made, request.param)


async def test_the_agent_sees_only_tools_that_it_may_call(front: Front) -> None:
    async with front.client() as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        prompts = [each.name for each in (await client.list_prompts()).prompts]
        resources = [each.uri for each in (await client.list_resources()).resources]
        templates = await client.list_resource_templates()
    assert "weather" in tools
    assert "contracts" in tools
    assert "payroll" not in tools
    assert prompts == ["greet"]
    assert resources == ["file:///docs/open.txt"]
    assert [each.uri_template for each in templates.resource_templates] == ["note://open/{name}"]
    # Lists are filtered, not reads.
    assert await front.sidecar.decisions() == []


async def test_an_allowed_call_gets_the_server_s_own_answer(front: Front) -> None:
    async with front.client() as client:
        weather = await client.call_tool("weather", {"city": "Ulm"})
        contracts = await client.call_tool("contracts", {"query": "lease"})
    assert text_of(weather.content[0]) == "sunny in Ulm"
    assert contracts.structured_content == {"found": ["lease", "§ 12"], "count": 2}
    assert await front.sidecar.decisions() == [
        ("ALLOW", "analysts-read", "mcp://kb/tool/weather"),
        ("ALLOW", "analysts-read", "mcp://kb/tool/contracts"),
    ]
    lineage = await front.sidecar.lineage(2)
    assert [each["detail"]["status"] for each in lineage] == [200, 200]


async def test_a_denied_call_is_an_error_with_its_decision_and_never_arrives(front: Front) -> None:
    async with front.client() as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("payroll", {"month": "May"})
        # The session goes on.
        await client.call_tool("weather", {"city": "Ulm"})
    assert caught.value.error.code == -32001
    assert "critical" in caught.value.error.message
    [(decision, name, source_id), _] = await front.sidecar.decisions()
    assert (decision, source_id) == ("DENY", "mcp://kb/tool/payroll")
    data = caught.value.error.data
    assert (data["decision"], data["policy_name"]) == ("DENY", name)
    told = f"{data['reason']} (event {data['event_id']})"
    assert caught.value.error.message == told
    assert front.server.names("tools/call") == ["weather"]


async def test_a_header_that_names_another_tool_than_the_body_is_refused(front: Front) -> None:
    async def rename(sent: httpx2.Request) -> None:
        sent.headers["Mcp-Name"] = "weather"

    async with httpx2.AsyncClient(event_hooks={"request": [rename]}) as renaming:
        transport = streamable_http_client(front.url, http_client=renaming)
        async with Client(transport, mode=front.mode, read_timeout_seconds=10) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("payroll", {"month": "May"})
    # Older versions have no such header: the body decides, as always.
    assert caught.value.error.code == (-32020 if front.mode == NEW else -32001)
    assert front.server.names("tools/call") == []
    # As specified, the client lists the tools again and retries.
    denied = {each[0::2] for each in await front.sidecar.decisions()}
    assert denied == {("DENY", "mcp://kb" if front.mode == NEW else "mcp://kb/tool/payroll")}


async def test_resources_prompts_and_completions_are_judged_each_by_its_name(front: Front) -> None:
    greet = types.PromptReference(type="ref/prompt", name="greet")
    fire = types.PromptReference(type="ref/prompt", name="fire")
    notes = types.ResourceTemplateReference(type="ref/resource", uri="note://shut/{name}")
    argument = {"name": "name", "value": "a"}
    async with front.client() as client:
        text = await client.read_resource("file:///docs/open.txt")
        note = await client.read_resource("note://open/one")
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        values = await client.complete(greet, argument)
        for denied in (
            client.read_resource("file:///docs/shut.txt"),
            client.read_resource("note://shut/one"),
            client.get_prompt("fire", {"name": "Ada"}),
            client.complete(fire, argument),
            client.complete(notes, argument),
        ):
            with pytest.raises(MCPError) as caught:
                await denied
            assert caught.value.error.code == -32001
    assert text_of(text.contents[0]) == "the open text"
    assert text_of(note.contents[0]) == "open note one"
    assert text_of(prompt.messages[0].content) == "say hello to Ada"
    assert values.completion.values == ["ada", "alan"]
    assert [each[0::2] for each in await front.sidecar.decisions()] == [
        ("ALLOW", "mcp://kb/resource/file:///docs/open.txt"),
        ("ALLOW", "mcp://kb/resource/note://open/one"),
        ("ALLOW", "mcp://kb/prompt/greet"),
        ("ALLOW", "mcp://kb/prompt/greet"),
        ("DENY", "mcp://kb/resource/file:///docs/shut.txt"),
        ("DENY", "mcp://kb/resource/note://shut/one"),
        ("DENY", "mcp://kb/prompt/fire"),
        ("DENY", "mcp://kb/prompt/fire"),
        ("DENY", "mcp://kb/resource/note://shut/%7Bname%7D"),
    ]
    assert not [each for each in front.server.arrived if "shut" in str(each) or "fire" in str(each)]


async def test_forbidden_resources_are_removed_from_a_result(front: Front) -> None:
    async with front.client() as client:
        result = await client.call_tool("gathered")
    kinds = [block.type for block in result.content]
    assert kinds == ["text", "resource_link", "resource"]
    assert "shut" not in result.model_dump_json()
    [lineage] = await front.sidecar.lineage()
    assert lineage["detail"]["withheld"] == 2


async def test_a_data_source_that_an_argument_names_is_judged_too(front: Front) -> None:
    async with front.client() as client:
        rows = await client.call_tool("search", {"filter": {"collection": "open_docs"}})
        for filter_ in ({"collection": "shut_docs"}, {}, {"collection": ""}):
            with pytest.raises(MCPError) as caught:
                await client.call_tool("search", {"filter": filter_})
            assert caught.value.error.code == -32001
    assert text_of(rows.content[0]) == "rows of open_docs"
    assert [each[0::2] for each in await front.sidecar.decisions()] == [
        ("ALLOW", "mcp://kb/tool/search"),
        ("ALLOW", "mcp://kb/data/open_docs"),
        ("DENY", "mcp://kb/data/shut_docs"),
        ("DENY", "mcp://kb"),
        ("DENY", "mcp://kb"),
    ]


async def test_a_filtered_list_may_not_be_cached_for_others(front: Front) -> None:
    async with front.client(cache=None) as client:
        tools = await client.list_tools()
        read = await client.read_resource("file:///docs/open.txt")
    if front.mode == NEW:
        assert tools.cache_scope == "private"
        assert read.cache_scope == "private"
        assert tools.ttl_ms == 60_000


async def test_progress_messages_pass(front: Front) -> None:
    heard: list[float] = []

    async def progressed(
        progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        heard.append(progress)

    async with front.client() as client:
        result = await client.call_tool("slow", {"steps": 3}, progress_callback=progressed)
    assert text_of(result.content[0]) == "3 steps"
    # A response in one piece has room for the result only.
    assert heard == ([] if front.server.whole else [1.0, 2.0, 3.0])


async def test_the_server_can_ask_the_user(front: Front) -> None:
    async def answer(context: Any, asked: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "green"})

    async with front.client(elicitation_callback=answer) as client:
        if front.mode == OLD and front.server.whole:
            # A response in one piece has no room for a question.
            with pytest.raises(MCPError, match="no back-channel"):
                await client.call_tool("asks")
            return
        result = await client.call_tool("asks")
    text = text_of(result.content[0])
    once = [("ALLOW", "analysts-read", "mcp://kb/tool/asks")]
    if front.mode == OLD:
        assert text == "painted green"
        assert await front.sidecar.decisions() == once
    else:
        assert text == "painted green, half painted"
        # With the user's answer it is repeated as a new request.
        assert await front.sidecar.decisions() == once * 2


async def test_a_result_fetched_later_belongs_to_its_call(front: Front) -> None:
    async with front.client() as client:
        result = await client.call_tool("later")
    assert text_of(result.content[0]) == "here it is"
    assert await front.sidecar.decisions() == [("ALLOW", "analysts-read", "mcp://kb/tool/later")]
    # Only the older version resumes streams, if there are any.
    resumes = front.mode == OLD and not front.server.whole
    assert (front.server.resumed > 0) is resumes


async def test_a_pushed_message_is_judged_on_arrival(front: Front) -> None:
    heard: list[str] = []
    notified = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))
            notified.set()

    async with front.client(message_handler=hear) as client:
        if front.mode == NEW:
            with pytest.raises(MCPError):
                async with client.listen(resource_subscriptions=["file:///docs/shut.txt"]):
                    raise AssertionError("a subscription to a denied resource was accepted")
            async with client.listen(resource_subscriptions=["file:///docs/open.txt"]) as events:
                await client.call_tool("touch")
                async with asyncio.timeout(20):
                    async for event in events:
                        assert hasattr(event, "uri")
                        heard.append(event.uri)
                        break
        else:
            # The client opens the stream for pushed messages beside the session.
            await asyncio.sleep(0.2)
            await client.call_tool("touch")
            async with asyncio.timeout(20):
                await notified.wait()
    assert set(heard) == {"file:///docs/open.txt"}


async def test_a_session_begins_and_ends_through_the_sidecar(front: Front) -> None:
    async with front.client() as client:
        assert client.protocol_version == ("2025-11-25" if front.mode == OLD else NEW)
        await client.list_tools()
    methods = {each.get("method") for each in front.server.arrived}
    if front.mode == OLD:
        assert methods == {"initialize", "notifications/initialized", "tools/list"}
    else:
        assert methods == {"tools/list"}


async def test_a_client_that_negotiates_gets_the_newest_version(front: Front) -> None:
    async with Client(front.url, mode="auto", read_timeout_seconds=10) as client:
        assert client.protocol_version == NEW
        assert (await client.call_tool("weather", {"city": "Ulm"})).content
