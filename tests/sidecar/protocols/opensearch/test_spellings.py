"""What OpenSearch receives is what was judged, for every spelling of a path, a parameter and a
body: an independent reader, which reads like the server, finds no denied index in it."""

import asyncio
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocols.opensearch.languages.piped import indices_of_esql, indices_of_ppl
from sidecar.protocols.opensearch.languages.sql import indices_of_sql
from sidecar.protocols.protocol import Unresolved
from tests.sidecar.own_loop import kept_open
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.opensearch.front import READERS, named_server
from tests.sidecar.proxy.raw_client import ask
from tests.support.properties import examples

SERVER = named_server()

_EXPRESSIONS = st.lists(
    st.sampled_from(
        ["open_docs", "open_docs", "shut_docs", "docs", "open_alias", "both", "open_d*", "sh*", "*",
         "_all", "", "-shut_docs", "open_logs", ".ds-shut-000001", "c:shut_docs", "<shut_docs>",
         "none", "%73hut_docs", "shut%5Fdocs", "open_docs%2Cshut_docs", "sh%2A", "%2E%2E", " "]
    ),
    min_size=1,
    max_size=3,
).map(",".join)  # fmt: skip

_VERBS = st.sampled_from(
    ["/_search", "/_search", "/_count", "/_msearch", "/_mget", "/_doc/1", "/_%73earch", "/_search/",
     "//_search", "/_search?index=shut_docs", "/_search?q=a&=index=shut_docs", "/_search?size=1",
     "/_search?a;index=shut_docs", "/_search?i%6Edex=shut_docs", "/../shut_docs/_search", "",
     "/_search?expand_wildcards=all", "/_termvectors/1", "/_mapping", "/_bulk", "/_source/1",
     "/_search?source=%7B%7D", "/_validate/query", "/type/1", "/_update_by_query", "/_alias"]
)  # fmt: skip

_NAMES = st.sampled_from(
    ["open_docs", "open_docs", "shut_docs", "open_alias", "docs", "sh*", "open_docs,shut_docs", 7,
     ["open_docs", "shut_docs"], None, "shut", "none"]
)  # fmt: skip
_LOOKUP = st.builds(
    lambda key, name, more: {key: name, **more},
    st.sampled_from(["index", "_index", "Index", "target_index"]),
    _NAMES,
    st.sampled_from([{"id": "1", "path": "page"}, {"_id": "1"}, {}, {"path": "page"}]),
)
_PART = st.one_of(
    _LOOKUP,
    st.just({"match_all": {}}),
    st.sampled_from([1, "text", ["a", {"b": 1}], {"page": [1, 2]}]),
)
_KEYS = st.sampled_from(
    ["query", "terms", "page", "bool", "must", "like", "term", "docs", "indexed_shape", "aggs",
     "wrapper", "percolate", "index", "ids", "pit", "indices_boost", "field"]
)  # fmt: skip


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=2)
    return st.dictionaries(_KEYS, st.one_of(inner, several), min_size=1, max_size=2)


BODIES = st.one_of(
    _around(_PART),
    st.recursive(_PART, _around, max_leaves=6).map(lambda part: {"query": part}),
    st.lists(_LOOKUP, max_size=3).map(lambda docs: {"docs": docs}),
)
LINES = st.lists(st.one_of(_LOOKUP, BODIES, st.just({})), min_size=2, max_size=4)
SPELT = st.sampled_from(["", "", "escape", "twice", "comment"])


def spelt(body: Any, how: str) -> bytes:
    text = json.dumps(body)
    if how == "escape":
        return text.replace('"index"', '"ind\\u0065x"').encode()
    if how == "twice":
        return text.replace('"index"', '"index": "shut_docs", "index"', 1).encode()
    return (b"/* */" if how == "comment" else b"") + text.encode()


def covered(expression: object) -> set[str]:
    """The sources of an expression, by the server's own tables."""
    found = set()
    for item in str(expression).split(","):
        pattern = "*" if item in ("_all", "") else item
        for alias, members in SERVER.aliases.items():
            if fnmatchcase(alias, pattern):
                found |= {name for each in members for name in covered(each)}
        for stream, parts in SERVER.streams.items():
            if fnmatchcase(stream, pattern) or pattern in parts:
                found.add(stream)
        for index in SERVER.indices:
            if not index.startswith(".ds-") and fnmatchcase(index, pattern):
                found.add(index)
    return found


def read_by_server(method: str, target: str, raw: bytes) -> set[str]:
    """The sources of a request, by a reader that parses parameters like RestUtils, and takes any
    object with an index and something to look up there for a look-up."""
    path, _, query = target.partition("?")
    segments = [unquote(part) for part in path[1:].split("/")]
    if segments == [""]:
        return set()
    stated = {}
    for pair in re.split("[&;]", query):
        name, _, value = pair.lstrip("=").partition("=")
        stated[unquote_plus(name)] = unquote_plus(value)
    assert not {"source", "index"} & stated.keys()
    default = "*" if segments[0].startswith("_") and segments[0] != "_all" else segments[0]
    found = covered(default)
    if segments[-1] in ("_msearch", "_bulk"):
        parsed = [json.loads(line) for line in raw.splitlines()]
        if segments[-1] == "_bulk":
            heads = [next(iter(line.values())) for line in parsed[::2]]
            return {name for head in heads for name in covered(head.get("_index", default))}
        named = [head.get("index", default) for head in parsed[::2]]
        lists = [each if isinstance(each, list) else [each] for each in named]
        found = {name for each in lists for one in each for name in covered(one)}
        pending: list[Any] = parsed[1::2]
    else:
        reads = not {"_search", "_count", "_mget", "_termvectors", "query"}.isdisjoint(segments)
        reads = reads or segments[-1] == "_update_by_query"
        pending = [json.loads(raw)] if reads and raw.strip() else []
        if segments[-1] == "_mget":
            docs = pending[0].get("docs", []) if pending else []
            own = [covered(doc.get("_index", default)) for doc in docs]
            found = set().union(*own) if own else found
        if "_termvectors" in segments and pending and "_index" in pending[0]:
            found |= covered(pending[0]["_index"])
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            for key in ("index", "_index"):
                if isinstance(node.get(key), str | int) and {"id", "_id", "path"} & node.keys():
                    found |= covered(node[key])
            if isinstance(node.get("target_index"), str):
                found |= covered(node["target_index"])
            assert not (isinstance(node.get("wrapper"), dict) and "query" in node["wrapper"])
            pending += node.values()
    return found


@pytest.fixture(scope="module")
def runner_and_front() -> Iterator[tuple[asyncio.Runner, Minimal]]:
    # The server records writes but changes nothing, so the names stay as they were.
    script = scripted(
        lambda method, target, _: (
            SERVER.answer("GET", target, b"") if "_resolve" in target else (200, {})
        )
    )
    with kept_open(
        lambda folder: minimal(folder, "opensearch", script, READERS, writes="allow")
    ) as made:
        yield made


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]), _EXPRESSIONS, _VERBS, BODIES, LINES, SPELT
)
@examples(250)
def test_some_requests_arrive_exactly_as_judged(
    runner_and_front: tuple[asyncio.Runner, Minimal],
    method: str,
    expression: str,
    verb: str,
    body: Any,
    several: list[Any],
    how: str,
) -> None:
    _check_what_arrives(runner_and_front, method, expression, verb, body, several, how)


@pytest.mark.deep(stands_in="test_some_requests_arrive_exactly_as_judged")
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]), _EXPRESSIONS, _VERBS, BODIES, LINES, SPELT
)
@examples(600)
def test_requests_arrive_exactly_as_judged(
    runner_and_front: tuple[asyncio.Runner, Minimal],
    method: str,
    expression: str,
    verb: str,
    body: Any,
    several: list[Any],
    how: str,
) -> None:
    _check_what_arrives(runner_and_front, method, expression, verb, body, several, how)


def _check_what_arrives(
    runner_and_front: tuple[asyncio.Runner, Minimal],
    method: str,
    expression: str,
    verb: str,
    body: Any,
    several: list[Any],
    how: str,
) -> None:
    runner, front = runner_and_front
    front.upstream.seen.clear()
    raw = spelt(body, how)
    if verb in ("/_msearch", "/_bulk"):
        raw = b"".join(spelt(each, how) + b"\n" for each in several)
    head = f"{method} /{expression.replace(' ', '%20')}{verb} HTTP/1.1\r\nHost: kb\r\n"
    head += (
        f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    answered = runner.run(ask(front.port, head.encode() + raw))
    arrived = [seen for seen in front.upstream.seen if "/_resolve/" not in seen.target]
    if answered.status != 200 or not arrived:
        assert answered.status in (200, 400, 403), answered.raw
        assert arrived == [] or answered.status == 200
        return
    [received] = arrived
    composed = received.line.startswith("GET ") and not received.body
    if composed and verb in ("", "/_mapping", "/_alias"):
        return
    assert received.body == raw
    judged = read_by_server(method, received.target, received.body)
    assert all(name.startswith("open") for name in judged), (received.line, raw)


_WORDS = st.sampled_from(
    ["SELECT", "select", "*", "x", "FROM", "from", "a", "b", "secret", ",", "JOIN", "LEFT", "ON",
    "=",
     "(", ")", "WHERE", "IN", "AS", "UNION", "'", '"', "`", ".", ";", "--", "/*", "*/", "\\", "\n",
     "1", "source", "index", "|", "lookup", "[", "]", "where", "LOOKUP JOIN", "ENRICH", "METADATA",
     "fields", "KEEP", "//", "#", "\u017f", '"""', "frozen", "search", "join", "FORK", "EVAL", "as"]
)  # fmt: skip
_TEXTS = st.one_of(
    st.tuples(
        st.sampled_from(["SELECT x FROM a ", "source=a ", "FROM a ", "SELECT x FROM a, b "]),
        st.lists(st.tuples(_WORDS, st.sampled_from([" ", " ", ""])), max_size=12),
    ).map(lambda parts: parts[0] + "".join(word + white for word, white in parts[1])),
    st.lists(st.tuples(_WORDS, st.sampled_from([" ", ""])), max_size=14).map(
        lambda parts: "".join(word + white for word, white in parts)
    ),
)


@given(_TEXTS)
@examples(150)
def test_the_sources_of_a_few_queries_include_everything_they_read(text: str) -> None:
    _includes_all(text)


@pytest.mark.deep(stands_in="test_the_sources_of_a_few_queries_include_everything_they_read")
@given(_TEXTS)
@examples(600)
def test_the_sources_of_a_query_include_everything_it_reads(text: str) -> None:
    _includes_all(text)


def _includes_all(text: str) -> None:
    """Every name that the most lenient of readers takes for a table is among the sources."""
    for reader, indices in (
        (loosely_in_sql, indices_of_sql),
        (loosely_in_ppl, indices_of_ppl),
        (loosely_in_esql, lambda query: indices_of_esql(query)[0] + indices_of_esql(query)[1]),
    ):
        try:
            names = {part for name in indices(text) for part in name.split(",")}
        except Unresolved:
            continue
        assert reader(text) <= names, text


def _unquoted(text: str) -> str:
    """Without strings, except for a quoted name after a keyword that reads one."""
    keeps = r"(?i)((?:from|join|,|source\s*=|index\s*=|lookup|enrich)\s*)[\"`]([\w*]+)[\"`]"
    return re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", " ? ", re.sub(keeps, r"\1\2", text))


def loosely_in_sql(text: str) -> set[str]:
    return set(re.findall(r"(?i)\b(?:from|join)\s+\(*([A-Za-z_][\w.*@-]*)", _unquoted(text))) - {
        "SELECT", "select"
    }  # fmt: skip


def loosely_in_ppl(text: str) -> set[str]:
    plain = _unquoted(text)
    found = set(
        re.findall(r"(?i)(?:^|\[)\s*(?:search\s+)?(?:source|index)\s*=\s*([\w.*@-]+)", plain)
    )
    return found | set(re.findall(r"(?i)\|\s*lookup\s+([\w.*@-]+)", plain))


def loosely_in_esql(text: str) -> set[str]:
    plain = _unquoted(text)
    found = set(re.findall(r"(?i)^\s*from\s+([\w.*@-]+)", plain))
    return found | set(re.findall(r"(?i)\b(?:lookup\s+join|enrich)\s+([\w.*@-]+)", plain))
