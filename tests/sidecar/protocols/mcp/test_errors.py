"""The errors that the sidecar answers with have the codes and the status of the specification, so
that clients which probe a server go on as they would without the sidecar."""

from typing import Any

import pytest

from tests.sidecar.protocols.mcp.wire import (
    CALL,
    MODERN,
    VERSION_KEY,
    Wire,
    heads,
    modern,
    request,
)
from tests.sidecar.proxy.raw_client import Answered, ask, get

OLDER = "MCP-Protocol-Version: 2025-11-25"


def error_of(answered: Answered) -> tuple[int, int, str]:
    """Status, code, and the policy name of the decision."""
    error = answered.json["error"]
    return answered.status, error["code"], error["data"]["policy_name"]


@pytest.mark.parametrize("method", ["tools/destroy", "com.example/search"])
async def test_an_unknown_method_is_answered_with_404_only_if_that_ends_no_session(
    wire: Wire, method: str
) -> None:
    newest = await wire.post(modern(method, {}), *heads(method))
    older = await wire.post(request(method, {}), OLDER)
    unstated = await wire.post(request(method, {}))
    assert error_of(newest) == (404, -32601, "unclassified_route")
    assert error_of(older) == (200, -32601, "unclassified_route")
    assert error_of(unstated) == (200, -32601, "unclassified_route")
    assert wire.upstream.seen == []
    decided = await wire.sidecar.decisions()
    assert decided == [("DENY", "unclassified_route", "mcp://kb")] * 3


@pytest.mark.parametrize("meta", [{}, {"_meta": {}}, {"_meta": {"other": 1}}])
async def test_a_message_without_its_version_has_invalid_params(
    wire: Wire, meta: dict[str, Any]
) -> None:
    answered = await wire.post(
        request("tools/call", {**CALL, **meta}), *heads("tools/call", "open")
    )
    assert error_of(answered) == (400, -32602, "unreadable_request")
    assert VERSION_KEY in answered.json["error"]["message"]
    assert wire.upstream.seen == []


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0"', -32700),
        (b"\xff", -32700),
        (b"[]", -32600),
        (b"null", -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    ],
)
async def test_only_a_body_that_is_not_json_is_a_parse_error(
    wire: Wire, raw: bytes, code: int
) -> None:
    answered = await wire.post(None, raw=raw)
    assert error_of(answered) == (400, code, "unreadable_request")
    assert wire.upstream.seen == []


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_another_http_method_is_refused_with_405_and_the_allowed_ones(
    wire: Wire, method: str
) -> None:
    answered = await ask(wire.port, get("/mcp").replace(b"GET", method.encode(), 1))
    assert answered.status == 405
    assert answered.fields["allow"] == "POST, GET, DELETE"
    assert answered.fields["x-sluice-decision"] == "DENY"
    if method != "HEAD":
        assert answered.json["decision"]["policy_name"] == "unclassified_route"
    assert (await ask(wire.port, get("/other").replace(b"GET", method.encode(), 1))).status == 403
    assert wire.upstream.seen == []


async def test_an_unknown_version_is_answered_with_the_servers_own(wire: Wire) -> None:
    fields = heads("tools/call", "open", "2031-01-01")

    async def supported() -> list[str]:
        answered = await wire.post(modern("tools/call", CALL, "2031-01-01"), *fields)
        assert answered.json["error"]["code"] == -32022
        listed: list[str] = answered.json["error"]["data"]["supported"]
        return listed

    assert len(await supported()) == 5
    wire.says = lambda _: {"supportedVersions": ["2031-01-01", MODERN, "2025-06-18"]}
    answered = await wire.post(modern("server/discover", {}), *heads("server/discover"))
    # The newest one can't be judged here, so no client is led to it.
    assert answered.json["result"]["supportedVersions"] == [MODERN, "2025-06-18"]
    assert await supported() == [MODERN, "2025-06-18"]
