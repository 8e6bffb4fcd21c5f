"""Requests for every row of each protocol's table: about a source that a policy allows and one that
it doesn't, with bodies that are missing, empty, partial, or have every member twice."""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from sidecar.protocols.bedrock.routes import ROUTES as BEDROCK
from sidecar.protocols.chroma.routes import ROUTES as CHROMA
from sidecar.protocols.mcp.methods import NOTIFICATIONS, REQUESTS
from sidecar.protocols.milvus.routes import REST_ROUTES as MILVUS
from sidecar.protocols.opensearch.routes import ROUTES as OPENSEARCH
from sidecar.protocols.pinecone.routes import ROUTES as PINECONE
from sidecar.protocols.qdrant.routes import ROUTES as QDRANT
from sidecar.protocols.s3.routes import OPERATIONS
from sidecar.protocols.weaviate.routes import ROUTES as WEAVIATE

TABLES: dict[str, Any] = {
    "bedrock": BEDROCK,
    "chroma": CHROMA,
    "mcp": (*REQUESTS.values(), *NOTIFICATIONS.values()),
    "milvus": MILVUS,
    "opensearch": OPENSEARCH,
    "pinecone": PINECONE,
    "qdrant": QDRANT,
    "s3": OPERATIONS,
    "weaviate": WEAVIATE,
}
# The name that the policy allows, then one that it does not.
NAMES = {
    "bedrock": ("KBOPEN0001", "KBSHUT0001"),
    "milvus": ("open_docs", "shut_docs"),
    "opensearch": ("open_docs", "shut_docs"),
    "weaviate": ("Open", "Shut"),
}
IDS = {str(uuid.uuid5(uuid.NAMESPACE_URL, name)): name for name in ("open", "shut")}
# What takes the place of these parameters in a pattern; any other that names a source is a name.
FIXED = {"tenant": "t", "database": "d", "bucket": "lake", "shard": "0", "how": "vector"}
QUERIES = {"pinecone": "ids=1&namespace", "weaviate": "class", "opensearch": "index"}
NAMING = ("collection", "class", "index", "namespace", "knowledgeBase", "name", "key")
Q = {"vector": [1.0, 0.1], "topK": 3, "limit": 3}


class Request(NamedTuple):
    method: str
    target: str
    body: bytes | None


def bodies_of(kind: str, name: str) -> list[bytes]:
    """Bodies that name a source, in each form that the kind has."""
    found: list[Any] = [{}]
    if kind == "chroma":
        found += [{"name": name, "get_or_create": True}, {"new_name": name}]
    elif kind == "qdrant":
        other = {"lookup_from": {"collection": name}}
        found += [Q, Q | other, {"searches": [Q, Q | other]}, {"init_from": name}]
        found += [{"prefetch": {"query": 1, **other}}, {"query": 1}]
    elif kind == "opensearch":
        terms = {"terms": {"x": {"index": name, "id": "1", "path": "y"}}}
        found += [
            {"query": {"match_all": {}}},
            {"query": terms},
            {"query": f"select * from {name}"},
        ]
        found += [{"query": f"source={name}"}, {"docs": [{"_index": name, "_id": "1"}]}]
        found += [{"pit": {"id": name}}, {"scroll_id": name}, {"ids": ["1"]}]
        found += [b'{"index":"%b"}\n{"query":{"match_all":{}}}\n' % name.encode()]
    elif kind == "weaviate":
        query = {"query": f"{{ Get {{ {name} {{ title }} }} }}"}
        found += [query, [query], {"class": name}, {"objects": [{"class": name}]}]
        call = {"name": "weaviate-query-hybrid", "arguments": {"collection_name": name}}
        found += [rpc("tools/call", call), rpc("tools/list", {}), rpc("initialize", {})]
    elif kind == "bedrock":
        base = {"knowledgeBaseConfiguration": {"knowledgeBaseId": name}}
        found += [{"retrievalQuery": {"text": "x"}}, {"retrievers": [base]}, {"nextToken": name}]
        of = {"type": "KNOWLEDGE_BASE", **base}
        found += [{"input": {"text": "x"}, "retrieveAndGenerateConfiguration": of}]
    elif kind == "pinecone":
        found += [{"namespace": name}, Q | {"namespace": name}, {"filter": {}}, {"name": name}]
        found += [{"namespace": name, "filter": {"a": 1}}, {"paginationToken": name}]
    elif kind == "milvus":
        named = {"collectionName": name}
        found += [named, named | {"search": [{}, named], "filter": "true) or (true"}]
        found += [named | {"newCollectionName": name, "aliasName": name}]
    elif kind == "s3":
        found += [f"<Delete><Object><Key>{name}</Key></Object></Delete>".encode()]
    return [each if isinstance(each, bytes) else json.dumps(each).encode() for each in found]


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def messages(method: str, name: str) -> list[bytes]:
    """The messages of an MCP method."""
    named = {"name": name, "uri": name, "taskId": name, "ref": {"type": "ref/prompt", "name": name}}
    stated = [named, {**named, "requestState": name}, {"uri": f"file:///{name}"}, {}]
    stated += [{"notifications": {"resourceSubscriptions": [f"file:///{name}"]}}]
    whole = [rpc(method, each) for each in stated]
    return [json.dumps(each).encode() for each in (*whole, {**whole[0], "id": None})] + [
        json.dumps({key: each[key] for key in each if key != "id"}).encode() for each in whole
    ]


def path_of(pattern: str, kind: str, name: str) -> str:
    def value(found: re.Match[str]) -> str:
        parameter = found[1]
        if kind == "chroma" and parameter == "id":
            return next(each for each, named in IDS.items() if named == name)
        if parameter == "crn":
            return f"t:d:{name}"
        return FIXED.get(parameter, name if parameter in NAMING else "1")

    return re.sub(r"\{(\w+)\}", value, pattern)


def targets(kind: str, row: Any, name: str) -> Iterator[tuple[str, str]]:
    """Method and target of each form of a row."""
    if kind == "mcp":
        yield "POST", "/mcp"
        return
    route = row.route if kind == "s3" else row
    path = path_of(route.pattern.partition("?")[0], kind, name)
    queries = [""]
    if kind == "s3":
        queries = ["&".join((*(f"{each}=1" for each in sorted(row.required)), *more))
                   for more in ((), (f"prefix={name}",))]  # fmt: skip
    elif kind in QUERIES and name not in path:
        queries = ["", f"{QUERIES[kind]}={name}"]
    for query in queries:
        for method in route.methods.split():
            yield method, f"{path}?{query}" if query else path


def requests(kind: str) -> Iterator[Request]:
    names = NAMES.get(kind, ("open", "shut"))
    for row in TABLES[kind]:
        route = row.route if kind == "s3" else row
        bodies = [
            messages(row.pattern, name) if kind == "mcp" else bodies_of(kind, name)
            for name in names
        ]
        for name, own in zip(names, bodies, strict=True):
            for number, (method, target) in enumerate(targets(kind, row, name)):
                some: list[bytes | None] = [b"" if method in ("GET", "HEAD") else b"{}"]
                if kind == "mcp" or route.parse_body is not None:
                    whole = name == names[0] and number == 0
                    some = list(varied(*bodies)) if whole else [b"", *own]
                yield from (Request(method, target, body) for body in some)


def varied(mine: list[bytes], other: list[bytes]) -> Iterator[bytes | None]:
    """No body, an empty one, each body whole, partial, and with every member twice."""
    yield from (None, b"", *mine, *other)
    for ours, theirs in zip(mine, other, strict=True):
        yield ours[:-1]
        if ours.endswith(b"}") and ours != b"{}":
            yield theirs[:-1] + b"," + ours[1:]
