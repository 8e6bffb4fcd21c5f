"""Every spelling of a call: whatever a parser could read in the body was judged, and the server
never received what was denied (`proxy/RULES.md`, Bypasses)."""

import asyncio
import json
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, ValidationError

from sidecar.http.attribution import Attribution
from sidecar.protocols.mcp.messages import McpObjects, canonical_uri
from sidecar.protocols.mcp.response_filter import ResponseFilter, Tokens, call_token
from sidecar.protocols.protocol import SourceRef, Unresolved, Visibility
from sidecar.protocols.shared.caches import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from tests.sidecar.own_loop import kept_open
from tests.sidecar.protocols.mcp.wire import Wire, wired
from tests.support.properties import examples
from tests.support.proxy import source


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("file:///open/a.txt", "file:///open/a.txt"),
        ("FILE:///open/a", "file:///open/a"),
        ("file://localhost/a", "file:///a"),
        ("file:///%61%2Eb/%c3%bc", "file:///a.b/%C3%BC"),
        ("note://Zürich/My Note", "note://Z%C3%BCrich/My%20Note"),
        ("note://Case/Counts", "note://Case/Counts"),
        ("note:plain", "note:plain"),
        ("note:/a", "note:/a"),
        ("note:///", "note:///"),
        ("urn:isbn:123", "urn:isbn:123"),
        ("https://EXAMPLE.com", "https://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:8080", "http://example.com:8080/"),
        ("http://127.0.0.1/a", "http://127.0.0.1/a"),
        ("postgres://user@host/db", "postgres://user@host/db"),
        ("weather://{city}/now{?units}", "weather://%7Bcity%7D/now%7B?units%7D"),
        ("x://a?q=a%2fb&c==", "x://a?q=a/b&c=%3D"),
        ("x://a?", "x://a"),
    ],
)
def test_a_uri_has_one_form(written: str, canonical: str) -> None:
    assert canonical_uri(written) == canonical
    assert canonical_uri(canonical) == canonical


@pytest.mark.parametrize(
    "written",
    [
        None, 5, "", "a" * 3000, "no scheme", "/etc/passwd", "1x:a", " file:///a", "file:///a\t",
        "file:///a\n", "file:/a", "file:a", "https:example.com", "https:///example.com",
        "file:///a/../b", "file:///a/%2e%2e/b", "file:///a/.%2E/b", "file:///..;/b", "file:////a",
        "file:///a//b", "file:///a%2Fb", "file:///a%5Cb", "file:///a\\b", "file:///a%00",
        "file:///a%252e", "file:///a%zz", "file:///a#b", "file:///%c0%ae", "note://../a",
        "note://a/./b", "note:../a", "https://user@example.com/", "https://example.com.:80/",
        "https://a..b/", "http://0x7f.1/", "http://127.1/", "http://2130706433/", "http://[::1]/",
        "https://example.com:0443/", "https://ex%61mple.com/", "https://exämple.com/",
        "x://a?b+c", "x://a?b;c", "x://a?%", "x://a?%00", "x://a?%252e", "x://a?%c0%ae",
        "file:///a?/../../b", "file:///a?b/%2e%2e/c", "x://a?b=..%2fc", "x://a?b=%5c",
    ],
)  # fmt: skip
def test_an_ambiguous_uri_has_no_form(written: object) -> None:
    with pytest.raises(Unresolved):
        canonical_uri(written)


@pytest.fixture(scope="module")
def runner_and_wire() -> Iterator[tuple[asyncio.Runner, Wire]]:
    with kept_open(wired) as made:
        yield made


SCHEMES = ["file:///open/", "file:///open/", "FILE:///open/", "file://localhost/open/", "file:///"]
PIECES = [
    "shut", "open", "%73hut", "a", "/", "//", "..", "../", "%2e%2e/", ".%2E/", "%2f", "%5c", "\\",
    "..;/", ";", "%00", "\t", "\n", " ", "#", "%23", "?", "%3f", "%25", "%252e", "%", "é", "%c3%a9",
    "%c0%ae", "\u2024\u2024/", "\uff0e\uff0e/", "@", ":", "+", "|", "%7c", "~", "../shut/", "",
]  # fmt: skip
URIS = st.builds(
    lambda scheme, parts: scheme + "".join(parts),
    st.sampled_from(SCHEMES),
    st.lists(st.sampled_from(PIECES), max_size=6),
)


def _read_by_many(uri: str) -> list[str]:
    """A file's path as read by a plain parser, by one that resolves dots, by one that decodes, and
    by a browser."""
    plain = uri.partition(":")[2].removeprefix("//localhost").removeprefix("//")
    paths = [plain, unquote(plain), unquote(unquote(plain))]
    with suppress(ValidationError):
        paths.append(unquote(AnyUrl(uri).path or "/"))
    return [posixpath.normpath("/" + path.replace("\\", "/").lstrip("/")) for path in paths]


@given(URIS)
@examples(300)
def test_a_resource_request_that_arrives_is_allowed_for_any_parser(
    runner_and_wire: tuple[asyncio.Runner, Wire], uri: str
) -> None:
    runner, wire = runner_and_wire
    wire.upstream.seen.clear()
    answered = runner.run(wire.call("resources/read", {"uri": uri}))
    if "error" in answered.json:
        assert wire.upstream.seen == []
        return
    [arrived] = wire.arrived
    assert arrived["params"]["uri"] == uri
    assert canonical_uri(canonical_uri(uri)) == canonical_uri(uri)
    for path in _read_by_many(uri):
        assert path == "/open" or path.startswith("/open/"), (uri, path)


METHODS = ["method", "method", "Method", "\\u006dethod", "METHOD", "mет", "method "]
NAMES = ["name", "name", "Name", "NAME", "n\\u0061me", "na\u212ae", "name\\u0000", "nаme"]
PARAMS = ["params", "params", "Params", "param\u017f", "pa\\u0072ams"]
VALUES = ['"open"', '"open"', '"shut"', '"\\u0073hut"', '["shut"]', "null", '{"name":"shut"}']
CALLS = ['"tools/call"', '"tools/call"', '"ping"', '"tools\\/call"', '"Tools/Call"', "null"]


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}"


def _pairs(keys: list[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(st.sampled_from(keys), values), min_size=1, max_size=3)


INNER = _pairs(NAMES, st.sampled_from(VALUES)).map(_object)
BODIES = st.builds(
    lambda calls, params, before, after: (
        before
        + _object([("jsonrpc", '"2.0"'), ("id", "1"), *calls, *params]).encode("utf-8")
        + after
    ),
    _pairs(METHODS, st.sampled_from(CALLS)),
    _pairs(PARAMS, INNER),
    st.sampled_from([b"", b" ", b"\xef\xbb\xbf", b"[", b"{}\n"]),
    st.sampled_from([b"", b"\n", b"]", b"{}", b"\x00"]),
)


def _readings(raw: bytes) -> Iterator[tuple[Any, Any]]:
    """Method and name, as read by parsers that take the first or the last of two keys, and that do
    or don't distinguish `Name` from `name`."""
    for last in (True, False):
        for folding in (True, False):
            message = json.loads(raw, object_pairs_hook=partial(_members, last, folding))
            params = message.get("params")
            yield message.get("method"), params.get("name") if isinstance(params, dict) else params


def _members(last: bool, folding: bool, found: list[tuple[str, Any]]) -> dict[str, Any]:
    ordered = found if last else found[::-1]
    return {(key.casefold() if folding else key): value for key, value in ordered}


@given(BODIES)
@examples(300)
def test_a_call_that_arrives_is_allowed_for_any_parser(
    runner_and_wire: tuple[asyncio.Runner, Wire], raw: bytes
) -> None:
    runner, wire = runner_and_wire
    wire.upstream.seen.clear()
    answered = runner.run(wire.post(None, raw=raw))
    if answered.status != 200 or "error" in answered.json:
        assert wire.upstream.seen == []
        return
    [seen] = wire.upstream.seen
    assert seen.body == raw
    for method, name in _readings(raw):
        assert method in ("tools/call", "ping")
        assert method == "ping" or name == "open", (method, name)


def test_a_result_that_may_no_longer_be_read_is_not_replayed() -> None:
    """A policy may change between a call and the stream with its result."""
    who = Attribution("ada", None, None, None)
    tokens = Tokens(*(Continuations(lambda: 0.0) for _ in range(3)))
    objects = McpObjects(SourceNames(source(1, "mcp")), {})
    tokens.calls.remember(call_token("s", 1), who, (SourceRef("mcp://kb/tool/open", "low"),))
    said = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
    for allowed in (True, False):
        sight = Visibility(partial(_answer, allowed), "", None)
        passed = ResponseFilter(objects, tokens, sight, who, "s").filter_message(said)
        assert passed is not None
        assert (passed.body == said) is allowed
        assert passed.withheld == (0 if allowed else 1)


def _answer(allowed: bool, _place: SourceRef) -> bool:
    return allowed
