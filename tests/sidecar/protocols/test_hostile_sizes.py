"""Requests and responses of hostile size or depth take linear work, and one that is too deep to be
written again is refused before it is judged."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import canonical
from sidecar.protocols.mcp.messages import McpObjects, canonical_uri
from sidecar.protocols.opensearch import indices
from sidecar.protocols.opensearch.handlers.multi_search import parse_searches
from sidecar.protocols.opensearch.indices import parse_names
from sidecar.protocols.protocol import RoutedRequest
from sidecar.protocols.qdrant.filter import LIST, Rest, narrow
from sidecar.protocols.shared.responses import DocumentLevels, to_json
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import MAX_DEPTH, Budget, OverBudget, json_object
from tests.sidecar.protocols.minimal import denied, minimal, scripted
from tests.support.proxy import policy, source

WHO = Attribution("somebody", None, None, None)


def deep(levels: int) -> bytes:
    return b'{"where":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def test_a_body_is_accepted_up_to_the_depth_that_can_be_written() -> None:
    assert json_object(deep(MAX_DEPTH), None)
    for levels in (MAX_DEPTH + 1, 254, 255, 1000):
        with pytest.raises(Malformed, match="nested too deeply"):
            json_object(deep(levels), None)
    # Beside numbers too, where the count of members does not look.
    with pytest.raises(Malformed, match="nested too deeply"):
        json_object(b'{"a":[1,' + b"[" * 250 + b"]" * 250 + b"]}", None)
    assert json_object(b'{"a":[' + b"[]," * 5000 + b"[]]}", None)


async def test_a_body_that_is_too_deep_is_one_recorded_denial(tmp_path: Path) -> None:
    readers = policy(allowed_sources=("qdrant://kb/*",), max_sensitivity="low")
    answer = scripted(lambda *_: (200, {"result": {"aliases": []}}))
    async with minimal(
        tmp_path, "qdrant", answer, readers, sensitivity_field="level", sensitivity="low"
    ) as front:
        body = b'{"limit":1,"filter":' + deep(300) + b"}"
        found = await front.ask("POST", "/collections/open/points/search", raw=body)
        denied(found, "unreadable_request", 400)
        assert await front.sources() == [("DENY", "qdrant://kb")]


def test_a_response_that_is_too_deep_is_not_passed_on() -> None:
    with pytest.raises(UpstreamFailed, match="nested too deeply"):
        to_json(orjson.loads(deep(400)))


class _Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)


def test_excluded_members_are_compared_once_each() -> None:
    count = 2000
    names = [_Name("acl" if at % 2 else f"x{at}") for at in range(count)]
    _Name.compared = 0
    levels = DocumentLevels(("acl", "level"), ("low",))
    narrow({"with_payload": {"exclude": names}}, levels, Rest(batch=False), LIST)
    assert _Name.compared < 3 * count


def _asked(target: str, body: Any) -> RoutedRequest:
    async def fetch(_: str, _body: bytes | None = None) -> Any:
        raise AssertionError("nothing is looked up here")

    path = canonical(target)
    return RoutedRequest("POST", path, (path.segments[0],), body, fetch, [], WHO, Budget())


def _lines(path: str, count: int) -> int:
    """How many lines of code run for as many searches as there are names in the path."""
    asked = _asked(path, [{}, {}] * count)
    lines = 0

    def step(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        parse_searches(asked, {})
    finally:
        sys.settrace(before)
    return lines


def test_the_names_of_a_path_are_read_once_for_all_searches() -> None:
    def work(count: int) -> int:
        return _lines("/" + ",".join(["a"] * count) + "/_msearch", count)

    assert work(400) < 4.4 * work(100)


def test_an_index_expression_has_each_name_once_and_a_limited_number() -> None:
    assert parse_names("a,b,a") == ("a", "b")
    assert parse_names(["b", "a", "b"]) == ("b", "a")
    assert len(parse_names(",".join(f"a{at}" for at in range(128)))) == 128
    with pytest.raises(OverBudget, match="more than 128 names"):
        parse_names(",".join(f"a{at}" for at in range(5000)))


def test_a_name_that_is_repeated_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(value: object) -> str:
        read.append(value)
        return str(value)

    monkeypatch.setattr(indices, "parse_name", counted)
    assert parse_names("a,b," * 100_000 + "a") == ("a", "b")
    with pytest.raises(OverBudget, match="more than 128 names"):
        parse_names(["a"] * 129)
    assert read == ["a", "b"]


def test_a_tool_call_with_too_many_sources_is_refused_before_they_are_named() -> None:
    objects = McpObjects(SourceNames(source(1, "mcp")), {"search": "collections"})
    params = {"name": "search", "arguments": {"collections": [f"c{at}" for at in range(65)]}}
    with pytest.raises(OverBudget, match="more than 64 sources"):
        objects.tool_sources(params)
    params["arguments"] = {"collections": ["c"] * 1000}
    assert len(set(objects.tool_sources(params))) == 2


async def test_subscriptions_are_counted_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(text: object) -> str:
        read.append(text)
        return canonical_uri(text)

    monkeypatch.setattr("sidecar.protocols.mcp.messages.canonical_uri", counted)
    readers = policy(allowed_sources=("mcp://kb/*",))
    wanted = {"resourceSubscriptions": [f"file:///{at}" for at in range(5000)]}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"notifications": wanted},
    }
    async with minimal(tmp_path, "mcp", scripted(lambda *_: (200, {})), readers) as front:
        answered = await front.ask("POST", "/mcp", message)
        assert answered.status == 400
        assert await front.sources() == [("DENY", "mcp://kb")]
    assert len(read) == 65
