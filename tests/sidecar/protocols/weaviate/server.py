"""A minimal Weaviate, since no wheel has the real one: a schema of a few collections, GraphQL
executed by graphql-core, and the REST routes that the tests use.

It is not lenient as Weaviate's JSON reader is (members in any case, the last of two): tests of that
look at what is forwarded.
"""

import json
from typing import Any
from urllib.parse import parse_qs, unquote

from graphql import build_schema, graphql_sync

COLLECTIONS = ("Open", "OpenMore", "Shut")
ALIASES = {"OpenAlias": "Shut", "Docs": "Open"}
REFERENCES = {"next": ["Shut"], "more": ["OpenMore"], "either": ["OpenMore", "Shut"]}
"""The collections to which the references of each collection lead."""
PROPERTIES = [
    {"name": name, "dataType": types, "indexFilterable": True, "indexSearchable": True}
    for name, types in ({"title": ["text"], "level": ["text"]} | REFERENCES).items()
]
# What the client reads of a definition besides.
SETTINGS: dict[str, Any] = {
    "invertedIndexConfig": {
        "bm25": {"b": 0.75, "k1": 1.2},
        "cleanupIntervalSeconds": 60,
        "stopwords": {"preset": "en", "additions": None, "removals": None},
    },
    "replicationConfig": {"factor": 1},
    "shardingConfig": {
        "virtualPerPhysical": 128,
        "desiredCount": 1,
        "actualCount": 1,
        "desiredVirtualCount": 128,
        "actualVirtualCount": 128,
        "key": "_id",
        "strategy": "hash",
        "function": "murmur3",
    },
    "vectorizer": "none",
}

BATCHES = {"queueLength": 0, "ratePerSecond": 0}
"""A node's load, by which the client chooses the size of a dynamic batch."""

_CLASS = """
type %(name)s { title: String, level: String, _additional: Additional, next: [%(name)sNextObj] }
union %(name)sNextObj = Open | OpenMore | Shut
"""
_FIELD = (
    "%(name)s(where: Where, limit: Int, tenant: String, nearVector: Near, nearObject: Object): "
)
_SDL = """
enum Op { And Or Equal Like }
enum Level { ONE ALL }
input Where { operator: Op, path: [String], operands: [Where], valueText: String }
input Near { vector: [Float], distance: Float }
input Object { id: String, beacon: String }
type Additional { id: String, distance: Float, group: Group }
type Group { count: Int }
type Count { meta: Meta }
type Meta { count: Int }
schema { query: WeaviateObj }
type WeaviateObj { Get: GetObjectsObj, Aggregate: AggregateObjectsObj, Explore: [Additional] }
"""


class Server:
    """`objects` are those of each collection, one a level, by the collection's name."""

    def __init__(self, *levels: Any) -> None:
        parts = [_SDL, *(_CLASS % {"name": name} for name in COLLECTIONS)]
        for kind, of in (("Get", "[%s]"), ("Aggregate", "[Count]")):
            fields = (
                _FIELD % {"name": name} + (of % name if "%" in of else of) for name in COLLECTIONS
            )
            parts.append(f"type {kind}ObjectsObj {{ {' '.join(fields)} }}")
        self._schema = build_schema("\n".join(parts))
        self.objects = {
            name: [
                {"id": f"0000000{n}-0000-4000-8000-000000000000", "title": f"text of {name} {n}",
                 "level": level, "__typename": name}
                for n, level in enumerate(levels, 1)
            ]
            for name in COLLECTIONS
        }  # fmt: skip

    def answer(self, method: str, target: str, raw: bytes) -> tuple[int, Any]:
        """The interface of `scripted`."""
        path, _, query = target.partition("?")
        body: Any = json.loads(raw) if raw else None
        match method, [unquote(part) for part in path[1:].split("/")]:
            case "POST", ["v1", "graphql"]:
                return 200, self._run(body)
            case "POST", ["v1", "graphql", "batch"]:
                return 200, [self._run(each) for each in body]
            case "GET", ["v1", "aliases"]:
                return 200, {
                    "aliases": [{"alias": name, "class": to} for name, to in ALIASES.items()]
                }
            case "GET", ["v1", "schema"]:
                return 200, {"classes": [{"class": name, **SETTINGS} for name in COLLECTIONS]}
            case (("GET" | "DELETE"), ["v1", "schema", name]):
                own = ALIASES.get(name, name)
                found = {"class": own, "properties": PROPERTIES, **SETTINGS}
                return (200, found) if own in COLLECTIONS else (404, None)
            case "GET", ["v1", "schema", _, "tenants"]:
                return 200, [{"name": name} for name in ("ours", "theirs")]
            case "GET", ["v1", "nodes", *_]:
                shards = [{"class": name, "name": "ours"} for name in COLLECTIONS]
                stats = {"batchStats": BATCHES, "stats": {"objectCount": 9}}
                return 200, {"nodes": [{"name": "n", **stats, "shards": shards}]}
            case "POST", ["v1", "batch", "references"]:
                return 200, [{"result": {"status": "SUCCESS"}} for _ in body]
            case "GET", ["v1", "objects"]:
                return 200, self._listed(parse_qs(query)["class"][0])
            case (("GET" | "HEAD"), ["v1", "objects", _, identity]):
                return (200, {"id": identity}) if method == "GET" else (204, None)
            case "GET", ["v1", "meta"]:
                return 200, {"version": "1.40.0", "hostname": "http://[::]:8080", "modules": {}}
            case "GET", ["v1", ".well-known", "openid-configuration"]:
                return 404, {}
        return 200, {"done": True}

    def _run(self, body: Any) -> Any:
        found = graphql_sync(
            self._schema, body["query"], self._root(), variable_values=body.get("variables"),
            operation_name=body.get("operationName"),
        )  # fmt: skip
        return found.formatted

    def _root(self) -> dict[str, Any]:
        def get(name: str) -> Any:
            return lambda _info, where=None, **_arguments: [
                {**each, "_additional": {"id": each["id"]}, "next": self.objects["Shut"][:1]}
                for each in self.objects[name]
                if where is None or _holds(where, each)
            ]

        def count(name: str) -> Any:
            return lambda _info, **_arguments: [{"meta": {"count": len(self.objects[name])}}]

        return {
            "Get": {name: get(name) for name in COLLECTIONS},
            "Aggregate": {name: count(name) for name in COLLECTIONS},
        }

    def _listed(self, name: str) -> Any:
        objects = [
            {"class": name, "id": each["id"],
             "properties": {"title": each["title"], "level": each["level"]}}
            for each in self.objects[name]
        ]  # fmt: skip
        return {"objects": objects, "totalResults": len(objects)}


def _holds(where: Any, found: Any) -> bool:
    """Compares like Weaviate for a text tokenized by words: `Equal` is true for any of them."""
    each = [_holds(one, found) for one in where.get("operands") or ()]
    match where["operator"]:
        case "And":
            return all(each)
        case "Or":
            return any(each)
    value = found[where["path"][0]]
    return value is not None and where["valueText"].lower() in str(value).lower().split()
