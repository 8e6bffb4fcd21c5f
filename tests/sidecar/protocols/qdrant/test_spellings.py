"""Qdrant receives only what was judged, for every spelling of a path and of a body: an independent
parser that reads like Qdrant finds no name that may not be read."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.own_loop import kept_open
from tests.sidecar.protocols.minimal import Minimal, minimal
from tests.support.properties import examples
from tests.support.proxy import policy
from tests.support.scripted_source import Seen, answer

ALIASES = {"docs": "open_docs", "open_alias": "shut_docs", "shut_alias": "open_docs"}
NAMES = ["open_docs", "shut_docs", *ALIASES, "shut%5fdocs", "sh%75t_docs", "open_docs%2F..", "%2e"]
VERBS = [
    "points/query", "points/query/batch", "points/query/groups", "points/recommend", "points",
    "points/scroll", "points/%71uery", "points//query", "points/query/", "facet", "points/1",
    "points/query?x=1", "points/query%3fx", "../shut_docs/points/query", "snapshots",
]  # fmt: skip

_PLAIN = st.sampled_from(["open_docs", "shut_docs", *ALIASES])
_LOOKUP = st.one_of(
    st.none(),
    _PLAIN,
    _PLAIN.map(lambda name: {"collection": name}),
    _PLAIN.map(lambda name: [name]),
    _PLAIN.map(lambda name: {"Collection": name}),
    st.just(7),
)
_KEYS = st.sampled_from(["lookup_from", "with_lookup", "Lookup_From", "query", "filter", "limit"])
_PART = st.dictionaries(_KEYS, _LOOKUP, max_size=3)


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    nested = st.one_of(inner, st.lists(inner, max_size=2))
    key = st.sampled_from(["prefetch", "searches", "prefetch", "query"])
    return st.builds(lambda part, name, value: {**part, name: value}, _PART, key, nested)


BODIES = st.recursive(_PART, _around, max_leaves=6)
ESCAPES = st.sampled_from(["", "escape", "twice"])


def spelt(body: Any, how: str) -> bytes:
    text = json.dumps(body)
    if how == "escape":
        return text.replace("lookup_from", "lookup_fr\\u006fm").encode()
    if how == "twice":
        return text.replace('"lookup_from"', '"lookup_from": null, "lookup_from"', 1).encode()
    return text.encode()


def read_by_qdrant(method: str, target: str, raw: bytes) -> set[str]:
    """The collections of a request, by a parser that takes the last of two members and accepts an
    array in place of any object."""
    segments = [unquote(part) for part in target.partition("?")[0][1:].split("/")]
    found = {segments[1]}
    # A write of points looks nothing up; a batch reads only its requests.
    pending = [json.loads(raw)] if raw and method == "POST" else []
    if segments[-1] == "batch":
        pending = [each.get("searches") for each in pending]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            for name in ("lookup_from", "with_lookup"):
                value = part.get(name)
                if isinstance(value, dict):
                    value = value.get("collection")
                elif isinstance(value, list):
                    value = value[0]
                if isinstance(value, str):
                    found.add(value)
            pending.append(part.get("prefetch"))
    return {ALIASES.get(name, name) for name in found}


async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
    listed = [{"alias_name": name, "collection_name": to} for name, to in ALIASES.items()]
    result = {"aliases": listed} if seen.target == "/aliases" else True
    await answer(body=json.dumps({"result": result}).encode())(seen, writer)


@pytest.fixture(scope="module")
def runner_and_front() -> Iterator[tuple[asyncio.Runner, Minimal]]:
    readers = policy(allowed_sources=("qdrant://kb/open_*",))
    with kept_open(
        lambda folder: minimal(folder, "qdrant", script, readers, writes="allow")
    ) as made:
        yield made


@given(st.sampled_from(["GET", "POST", "PUT"]), st.sampled_from(NAMES), st.sampled_from(VERBS),
       BODIES, ESCAPES)  # fmt: skip
@examples(500)
def test_requests_arrive_exactly_as_judged(
    runner_and_front: tuple[asyncio.Runner, Minimal],
    method: str,
    name: str,
    verb: str,
    body: Any,
    how: str,
) -> None:
    runner, front = runner_and_front
    front.upstream.seen.clear()
    raw = b"" if method == "GET" else spelt(body, how)
    answered = runner.run(front.ask(method, f"/collections/{name}/{verb}", raw=raw))
    arrived = [seen for seen in front.upstream.seen if seen.target != "/aliases"]
    if answered.status != 200:
        assert answered.status in (400, 403)
        assert arrived == []
        return
    [received] = arrived
    assert received.body == raw
    assert read_by_qdrant(method, received.target, received.body) == {"open_docs"}
