"""What Weaviate receives is what was judged, for every spelling of a query: executed by an
independent GraphQL, it returns no object of a denied collection."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.own_loop import kept_open
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.weaviate.server import ALIASES, Server
from tests.support.properties import examples
from tests.support.proxy import policy

NAMES = st.sampled_from(["Open", "Open", "Open", "OpenMore", "Shut", "shut", "OpenAlias", "Docs"])
WHERE = st.sampled_from([
    "", "", "", "", '(where: {operator: Like, path: ["title"], valueText: "text"})',
    '(tenant: "theirs")',
    '(where: {operator: Like, path: ["next", "Shut", "title"], valueText: "x"})',
    '(nearObject: {beacon: "weaviate://localhost/Shut/00000001-0000-4000-8000-000000000000"})',
    '(tenant: $t)', '(tenant: """the""")', '(tenant: "th\\u0065irs")',
])  # fmt: skip
SELECTED = st.sampled_from([
    "title", "title", "title", "...T", "title # }", "next { ... on Shut { title } }",
    "next { ...S }",
    "_additional { id }", "... { title }", ", title,",
])  # fmt: skip
SEARCH = st.builds(
    lambda alias, name, where, selected: f"{alias}{name}{where} {{ {selected}\n}}",
    st.sampled_from(["", "", "Open: ", "x:"]), NAMES, WHERE, SELECTED,
)  # fmt: skip
GROUPS = st.lists(SEARCH, min_size=1, max_size=2).map(" ".join)
ROOT = st.one_of(
    GROUPS.map(lambda inner: f"Get {{ {inner} }}"),
    GROUPS.map(lambda inner: f"Get {{ {inner} }}"),
    GROUPS.map(lambda inner: f"a: Get {{ ... on GetObjectsObj {{ {inner} }} }}"),
    NAMES.map(lambda name: f"Aggregate {{ {name} {{ meta {{ count }} }} }}"),
    st.just("Get { ...G }"),
    st.just("Explore { id }"),
    st.just("__typename"),
)
FRAGMENTS = st.sampled_from([
    "", "", "", "fragment G on GetObjectsObj { Shut { title } }", "fragment S on Shut { title }",
    "fragment T on Open { title }", "fragment G on GetObjectsObj { Open { title } }",
    "query Q { Get { Shut { title } } }",
])  # fmt: skip
QUERIES = st.builds(
    lambda head, roots, tail: f"{head} {{ {' '.join(roots)} }} {tail}",
    st.sampled_from(["", "", "", "query", 'query($t: String = "theirs")', "query A($t: String)"]),
    st.lists(ROOT, min_size=1, max_size=2), FRAGMENTS,
)  # fmt: skip
MEMBERS = st.sampled_from([
    {}, {}, {}, {}, {"variables": {"t": "theirs"}}, {"variables": {"t": None}},
    {"operationName": "Q"},
    {"Query": "{ Get { Shut { title } } }"}, {"extensions": {}},
])  # fmt: skip
PATHS = st.sampled_from(["/v1/graphql", "/v1/graphql", "/v1/graphql/batch", "/v1/%67raphql"])


def spelt(path: str, query: str, more: dict[str, Any]) -> Any:
    body = {"query": query, **more}
    return [{"query": "{ Get { Open { title } } }"}, body] if path.endswith("batch") else body


class Executing:
    """Executes the requests that arrive, and records the collections and tenants that they read."""

    def __init__(self) -> None:
        self.server = Server("low")
        self.touched: list[bytes] = []

    def answer(self, method: str, target: str, raw: bytes) -> tuple[int, Any]:
        status, answer = self.server.answer(method, unquote(target), raw)
        if target != "/v1/aliases" and not target.startswith("/v1/schema/"):
            self.touched.append(json.dumps(answer).encode())
        return status, answer


@pytest.fixture(scope="module")
def executing() -> Executing:
    return Executing()


@pytest.fixture(scope="module")
def runner_and_front(executing: Executing) -> Iterator[tuple[asyncio.Runner, Minimal]]:
    readers = policy(
        allowed_sources=("weaviate://kb/Open*",), denied_sources=("weaviate://kb/Open/theirs",)
    )
    script = scripted(executing.answer)
    with kept_open(lambda folder: minimal(folder, "weaviate", script, readers)) as made:
        yield made


@given(PATHS, QUERIES, MEMBERS)
@examples(500)
def test_requests_arrive_exactly_as_judged(
    runner_and_front: tuple[asyncio.Runner, Minimal],
    executing: Executing,
    path: str,
    query: str,
    more: dict[str, Any],
) -> None:
    runner, front = runner_and_front
    executing.touched.clear()
    answered = runner.run(front.ask("POST", path, spelt(path, query, more)))
    if answered.status != 200:
        assert answered.status in (400, 403), answered.raw
        assert executing.touched == []
        return
    [result] = executing.touched
    assert b"text of Shut" not in result
    assert b"theirs" not in front.upstream.seen[-1].body or b"Open(" not in result
    assert not any(alias.encode() in result for alias in ALIASES if alias != "Docs")
