"""Methods that the protocol doesn't have, allowed by the source's settings."""

from pathlib import Path

from sidecar.settings.model import VendorMethod
from tests.sidecar.protocols.mcp.wire import CALL, request, streamed_messages, wired
from tests.support.proxy import policy

METHODS = (
    VendorMethod("com.example/search"),
    VendorMethod("com.example/put", "write"),
    VendorMethod("com.example/shut"),
)
ALLOWED = policy(
    allowed_sources=(
        "mcp://kb/tool/open",
        "mcp://kb/method/com.example/search",
        "mcp://kb/method/com.example/put",
    )
)


async def test_a_method_of_the_settings_is_judged_by_its_own_name(tmp_path: Path) -> None:
    async with wired(tmp_path, ALLOWED, methods=METHODS) as wire:
        assert (await wire.call("com.example/search", {"q": 1})).json["result"] == {}
        codes = {}
        for name in ("com.example/shut", "com.example/put", "com.example/other"):
            codes[name] = (await wire.call(name, {})).json["error"]["code"]
        assert codes == {
            "com.example/shut": -32001,
            "com.example/put": -32001,
            "com.example/other": -32601,
        }
        notified = await wire.post({"jsonrpc": "2.0", "method": "com.example/search"})
        assert notified.status == 202
        assert [each["method"] for each in wire.arrived] == ["com.example/search"] * 2
        assert await wire.sidecar.decisions() == [
            ("ALLOW", "analysts-read", "mcp://kb/method/com.example/search"),
            ("DENY", "analysts-read", "mcp://kb/method/com.example/shut"),
            ("DENY", "write_denied", "mcp://kb/method/com.example/put"),
            ("DENY", "unclassified_route", "mcp://kb"),
            ("ALLOW", "analysts-read", "mcp://kb/method/com.example/search"),
        ]


async def test_a_method_that_writes_is_allowed_where_writes_are(tmp_path: Path) -> None:
    async with wired(tmp_path, ALLOWED, methods=METHODS, writes="allow") as wire:
        assert (await wire.call("com.example/put", {})).json["result"] == {}


async def test_the_servers_own_messages_of_such_a_method_are_judged_too(tmp_path: Path) -> None:
    async with wired(tmp_path, ALLOWED, methods=METHODS) as wire:
        said = [
            {"jsonrpc": "2.0", "method": f"com.example/{name}", "params": {}}
            for name in ("search", "shut", "other")
        ]
        answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
        wire.says = lambda _: [*said, answer]
        answered = await wire.post(request("tools/call", CALL))
        assert streamed_messages(answered) == [said[0], answer]
