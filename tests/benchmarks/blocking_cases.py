"""The worst request and the worst answer that each protocol accepts: as many bytes, and as many
objects, as the limits allow. Data only."""

from typing import NamedTuple

import orjson

from sidecar.protocols.strict_body import MAX_BRACKETS

BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Just under the limit of inspection, with what surrounds it."""
COLLECTION = "00000000-0000-4000-8000-000000000001"
NAMED = {"id": COLLECTION, "name": "c", "tenant": "t", "database": "d", "metadata": None}
BASE = "Knowledge1"[:10].upper()


class Case(NamedTuple):
    """A request to a source of `kind`, and the data source's responses by path. `marked` if
    documents are filtered by level."""

    name: str
    kind: str
    method: str
    target: str
    body: bytes
    answers: dict[str, bytes]
    marked: bool = False
    fields: tuple[str, ...] = ()


def filled(element: bytes, most: int = MAX_BRACKETS - 100) -> bytes:
    """The longest list of this element that fits."""
    brackets = element.count(b"{") + element.count(b"[")
    count = min(BYTES // (len(element) + 1), most // max(brackets, 1))
    return b"[" + b",".join([element] * count) + b"]"


# The colon in a text sends the body to the slower look for keys that stand twice.
CROWD = b'[{"b":":"},' + filled(b'{"a":1}')[1:]


def _answer(before: bytes, element: bytes, after: bytes) -> bytes:
    return before + filled(element) + after


def _chroma() -> list[Case]:
    start = "/api/v2/tenants/t/databases/d/collections"
    one = orjson.dumps(NAMED)
    body = b'{"query_embeddings":[[0.1]],"n_results":1,"where":{"$and":' + CROWD + b"}}"
    found = b'{"ids":[["1"]],"documents":null,"metadatas":null,"embeddings":null}'
    query = f"{start}/{COLLECTION}/query"
    rows = [
        orjson.dumps({**NAMED, "metadata": {"x": "y" * (BYTES // 255 - 200)}}) for _ in range(255)
    ]
    listed = b"[" + b",".join(rows) + b"]"
    return [
        Case("chroma, query", "chroma", "POST", query, body, {query: found, start: one}),
        Case("chroma, list", "chroma", "GET", start, b"", {start: listed}),
    ]


def _qdrant() -> list[Case]:
    body = b'{"query":[0.1],"filter":{"must":' + CROWD + b"}}"
    query, aliases = "/collections/c/points/query", b'{"result":{"aliases":[]}}'
    point = b'{"id":1,"version":1,"score":0.5,"payload":{"level":"low"}}'
    points = _answer(b'{"result":{"points":', point, b'},"status":"ok"}')
    listed = _answer(b'{"result":{"collections":', b'{"name":"c"}', b"}}")
    return [
        Case("qdrant, query", "qdrant", "POST", query, body, {query: b"{}", "/aliases": aliases}),
        Case(
            "qdrant, narrowed query", "qdrant", "POST", query, body,
            {query: points, "/aliases": aliases}, marked=True,
        ),
        Case("qdrant, list", "qdrant", "GET", "/collections", b"", {"/collections": listed}),
    ]  # fmt: skip


def _opensearch() -> list[Case]:
    resolved = b'{"indices":[{"name":"i","attributes":["open"]}],"aliases":[],"data_streams":[]}'
    answers = {"/_resolve/index/": resolved}
    body = b'{"query":{"bool":{"should":' + CROWD + b"}}}"
    hit = b'{"_index":"i","_id":"1","_score":1.0,"_source":{"level":"low","a":"b"}}'
    hits = _answer(b'{"took":1,"hits":{"total":{"value":1},"hits":', hit, b"}}")
    lines = b"".join(b'{"index":"i"}\n{"query":{"match":{"a":"%b"}}}\n' % (b"x" * 8000,)
                     for _ in range(500))  # fmt: skip
    everything = _answer(b'{"aliases":[],"data_streams":[],"indices":', b'{"name":"i"}', b"}")
    return [
        Case("opensearch, search", "opensearch", "POST", "/i/_search", body, answers),
        Case(
            "opensearch, narrowed search", "opensearch", "POST", "/i/_search", body,
            {**answers, "/i/_search": hits}, marked=True,
        ),
        Case("opensearch, 500 searches", "opensearch", "POST", "/_msearch", lines, answers),
        Case(
            "opensearch, list", "opensearch", "GET", "/_resolve/index/*", b"",
            {"/_resolve/index/": everything},
        ),
    ]  # fmt: skip


def _weaviate() -> list[Case]:
    answers = {"/v1/aliases": b'{"aliases":[]}', "/v1/schema/": b'{"class":"A"}'}
    query = b'{"query":"{Get{A{x}}}","variables":{"v":' + CROWD + b"}}"
    listed = _answer(b'{"classes":', b'{"class":"A"}', b"}")
    return [
        Case("weaviate, query", "weaviate", "POST", "/v1/graphql", query, answers),
        Case("weaviate, list", "weaviate", "GET", "/v1/schema", b"", {"/v1/schema": listed}),
    ]


def _pinecone() -> list[Case]:
    body = b'{"vector":[0.1],"topK":1,"filter":{"$and":' + CROWD + b"}}"
    match = b'{"id":"1","score":0.5,"metadata":{"level":"low"}}'
    matches = _answer(b'{"namespace":"","matches":', match, b"}")
    listed = _answer(b'{"namespaces":', b'{"name":"n"}', b"}")
    return [
        Case("pinecone, query", "pinecone", "POST", "/query", body, {}),
        Case(
            "pinecone, narrowed query", "pinecone", "POST", "/query", body,
            {"/query": matches}, marked=True,
        ),
        Case("pinecone, list", "pinecone", "GET", "/namespaces", b"", {"/namespaces": listed}),
    ]  # fmt: skip


def _mcp() -> list[Case]:
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"x":'
    done = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
    tools = _answer(b'{"jsonrpc":"2.0","id":1,"result":{"tools":', b'{"name":"t"}', b"}}")
    ask = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    accept = ("Accept: application/json, text/event-stream",)
    return [
        Case("mcp, call", "mcp", "POST", "/mcp", call + CROWD + b"}}}", {"/mcp": done},
             fields=accept),
        Case("mcp, list", "mcp", "POST", "/mcp", ask, {"/mcp": tools}, fields=accept),
        Case("mcp, list as an event", "mcp", "POST", "/mcp", ask,
             {"/mcp": b"data: " + tools + b"\n\n"}, fields=accept),
    ]  # fmt: skip


def _aws() -> list[Case]:
    retrieve = f"/knowledgebases/{BASE}/retrieve"
    where = b'{"vectorSearchConfiguration":{"filter":{"andAll":' + CROWD + b"}}}"
    body = b'{"retrievalQuery":{"text":"x"},"retrievalConfiguration":' + where + b"}"
    result = b'{"content":{"text":"x"},"metadata":{"level":"low"},"score":0.5}'
    results = _answer(b'{"retrievalResults":', result, b"}")
    entry = b"<Contents><Key>%b</Key><Size>1</Size></Contents>" % (b"k" * 200,)
    head = b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult><Name>bucket</Name>'
    keys = head + entry * ((MAX_BRACKETS - 100) // entry.count(b"<")) + b"</ListBucketResult>"
    deleted = b"".join(b"<Object><Key>k%d</Key></Object>" % number for number in range(64))
    padded = b"<Delete>" + deleted + b" " * (BYTES - 64 * 40) + b"</Delete>"
    return [
        Case("bedrock, retrieve", "bedrock", "POST", retrieve, body, {retrieve: results}),
        Case("bedrock, narrowed retrieve", "bedrock", "POST", retrieve, body,
             {retrieve: results}, marked=True),
        Case("s3, delete", "s3", "POST", "/bucket?delete", padded, {}),
        Case("s3, list", "s3", "GET", "/bucket?list-type=2", b"", {"/bucket": keys}),
    ]  # fmt: skip


def _rest() -> list[Case]:
    return [
        Case("rest, upload", "rest", "POST", "/x", b"x" * BYTES, {}),
        Case("rest, answer", "rest", "GET", "/x", b"", {"/x": b"x" * BYTES}),
    ]


CASES = (
    *_chroma(), *_qdrant(), *_opensearch(), *_weaviate(), *_pinecone(), *_mcp(), *_aws(), *_rest(),
)  # fmt: skip
