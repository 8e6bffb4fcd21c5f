"""Pinecone receives only what was judged, for every spelling of a path, a query and a body: a
parser that ignores case and takes the last of two names finds no namespace that may not be read."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.own_loop import kept_open
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.support.properties import examples
from tests.support.proxy import policy

NAMES = st.sampled_from(["open", "open", "shut", "", None, "__default__", "sh\u017ft", "Open"])
SEGMENTS = st.sampled_from(["open", "open", "shut", "sh%75t", "__default__", "%73hut", "open%2f"])
MEMBERS = st.sampled_from(
    ["namespace", "namespace", "Namespace", "name_space", "NAMESPACE", "n\\u0061mespace", "ids"]
)
BODIES = st.lists(st.tuples(MEMBERS, NAMES), max_size=2)
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(["namespace", "n%61mespace", "Namespace", "ids", "namespace%20"]),
        st.sampled_from(["open", "open", "shut", "", "sh%75t", "open;namespace=shut", "%zz"]),
    ),
    max_size=2,
)
PATHS = st.sampled_from([
    "/query", "/%71uery", "/vectors/fetch_by_metadata", "/vectors/upsert",
    "/records/namespaces/{}/search", "/namespaces/{}/documents/search", "/namespaces/{}",
    "/namespaces/{}/documents/fetch", "/namespaces/x/../{}",
])  # fmt: skip


def spelt(members: list[tuple[str, Any]], *, nested: bool) -> bytes:
    inner = ", ".join(f'"{name}": {json.dumps(value)}' for name, value in members)
    inner = f"{inner}, " if inner else ""
    queries = '"queries": [{"namespace": "shut"}], ' if nested else ""
    return f'{{{inner}{queries}"query": {{}}, "score_by": []}}'.encode()


def read_by_pinecone(target: str, raw: bytes) -> set[str]:
    """The namespaces of a request, by a lenient parser."""
    path, _, query = target.partition("?")
    segments = [unquote(part) for part in path[1:].split("/")]
    if "namespaces" in segments:
        return {segments[segments.index("namespaces") + 1]}
    found: dict[str, Any] = {}
    for pair in query.replace(";", "&").split("&"):
        name, _, value = pair.partition("=")
        found[unquote_plus(name).strip().replace("_", "").casefold()] = unquote_plus(value)
    body = json.loads(raw) if raw else {}
    found |= {name.replace("_", "").casefold(): value for name, value in body.items()}
    queries = body.get("queries", ()) if segments == ["query"] else ()
    names = [found.get("namespace"), *(each["namespace"] for each in queries)]
    return {name or "__default__" for name in names}


@pytest.fixture(scope="module")
def runner_and_front() -> Iterator[tuple[asyncio.Runner, Minimal]]:
    readers = policy(allowed_sources=("pinecone://kb/open", "pinecone://kb/__default__"))
    server = scripted(lambda *_: (200, {}))
    with kept_open(
        lambda folder: minimal(folder, "pinecone", server, readers, writes="allow")
    ) as made:
        yield made


@given(PATHS, SEGMENTS, BODIES, QUERIES, st.sampled_from([False, False, True]))
@examples(500)
def test_requests_arrive_exactly_as_judged(
    runner_and_front: tuple[asyncio.Runner, Minimal],
    path: str,
    segment: str,
    members: list[tuple[str, Any]],
    stated: list[tuple[str, str]],
    nested: bool,
) -> None:
    runner, front = runner_and_front
    front.upstream.seen.clear()
    method, raw, target = "POST", spelt(members, nested=nested), path.format(segment)
    if path in ("/namespaces/{}", "/query"):
        # In the query, as for every GET.
        method, raw = "GET", b""
        target = target if "{}" in path else "/vectors/fetch"
        target += "?" + "&".join(f"{name}={value}" for name, value in stated)
    answered = runner.run(front.ask(method, target, raw=raw))
    arrived = front.upstream.seen
    if answered.status != 200:
        assert answered.status in (400, 403)
        assert arrived == []
        return
    [received] = arrived
    assert received.body == raw
    assert read_by_pinecone(received.target, received.body) <= {"open", "__default__"}
