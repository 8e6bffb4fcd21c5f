"""A minimal OpenSearch, since no wheel has the real one. Its responses follow
opensearch-api-specification (`_core`, `indices`, `sql`, `asynchronous_search`), and it knows the
queries that the tests need. Like the real one it accepts aliases and patterns in bodies, and an
`index` parameter instead of a missing segment of the path."""

import json
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.sidecar.protocols.opensearch.server_documents import (
    clauses,
    filters,
    shown_source,
    value_at,
)

Answer = tuple[int, Any]

_SHARDS = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}


class Server:
    """Indices of documents, each `{"text", "page", "meta": {"level", "owner"}}`, and names that
    point to them."""

    def __init__(self) -> None:
        self.indices: dict[str, dict[str, dict[str, Any]]] = {}
        self.aliases: dict[str, list[str]] = {}
        self.streams: dict[str, list[str]] = {}
        self.hidden: set[str] = set()
        self.pages: dict[str, tuple[list[Any], Any]] = {}
        self.readers: dict[str, list[str]] = {}
        self.policies: dict[str, list[str]] = {}

    def create(self, name: str, *levels: Any) -> None:
        """Creates an index with a document for each level; None is a document without a level."""
        self.indices[name] = {
            str(number): {
                "text": f"text of {name}",
                "page": number,
                "meta": {"owner": "ada", **({} if level is None else {"level": level})},
                "vector": [1.0, number / 10],
            }
            for number, level in enumerate(levels or ("low",), 1)
        }

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        path, _, query = target.partition("?")
        parts = [unquote(part) for part in path[1:].split("/")]
        given = dict(parse_qsl(query, keep_blank_values=True))
        try:
            if parts[-1] in ("_msearch", "_bulk"):
                lines = [json.loads(line) for line in body.split(b"\n") if line.strip()]
                return 200, getattr(self, parts[-1])(parts[0], lines)
            return self._one(method, parts, given, json.loads(body) if body.strip() else {})
        except KeyError as error:
            return 404, {"error": {"type": "index_not_found_exception"}, "status": 404,
                         "index": str(error)}  # fmt: skip

    def _one(self, method: str, parts: list[str], given: dict[str, str], body: Any) -> Answer:
        match parts:
            case [""]:
                version = {"number": "3.2.0", "distribution": "opensearch"}
                return 200, {"name": "node", "cluster_name": "c", "version": version}
            case ["_resolve", "index", name]:
                return 200, self._resolved(name, given.get("expand_wildcards", "open"))
            case ["_search", "scroll", *rest]:
                return self._scrolled(method, rest[0] if rest else body["scroll_id"])
            case [*_, "_search", "point_in_time"] | [*_, "_pit"] if method == "POST":
                token = self._page([], self.concrete(parts[0]))
                return 200, {"pit_id" if parts[-1] == "point_in_time" else "id": token}
            case [*_, "_search", "point_in_time"] | ["_pit"]:
                return 200, {"pits": []}
            case [*head, "_search"]:
                return 200, self._search(head[0] if head else given.get("index", "*"), body, given)
            case ["_plugins", "_asynchronous_search"]:
                found = self._search(given.get("index", "*"), body, {})
                return 200, {"id": self._page([], found), "state": "STORE", "response": found}
            case ["_plugins", "_asynchronous_search", token]:
                return 200, {"id": token, "response": self.pages[token][1]}
            case [*head, "_count"]:
                found = self._search(head[0] if head else "*", body, given)
                return 200, {"count": found["hits"]["total"]["value"]}
            case [*head, "_mget"]:
                docs = body.get("docs") or [{"_id": each} for each in body["ids"]]
                return 200, {"docs": [self._doc(each.get("_index") or head[0], each["_id"])
                                      for each in docs]}  # fmt: skip
            case [index, "_doc", identity] if method in ("GET", "HEAD"):
                doc = self._doc(index, identity)
                return (200 if doc["found"] else 404), doc
            case [index, "_source", identity]:
                return 200, self._doc(index, identity)["_source"]
            case [index, "_doc", identity] | [index, "_create", identity]:
                self.indices.setdefault(index, {})[identity] = body
                return 201, {"_index": index, "_id": identity, "result": "created"}
            case ["_plugins", "_sql" | "_ppl"] | ["_sql"] | ["_query"]:
                return 200, {"schema": [], "datarows": [["text of sql"]], "cursor": "d:next"}
            case ["_plugins", "_sql", "close"]:
                return 200, {"succeeded": True}
            case ["_enrich", "policy", name]:
                config = {"match": {"name": name, "indices": self.policies[name]}}
                return 200, {"policies": [{"config": config}]}
            case ["_cat", "indices", *_]:
                return 200, [{"index": name, "docs.count": len(docs)}
                             for name, docs in self.indices.items()]  # fmt: skip
            case ["_data_stream", *_]:
                return 200, {"data_streams": [{"name": each} for each in self.streams]}
            case ["_aliases"]:
                return self._aliased("*", [])
            case ["_alias", *name]:
                return self._aliased("*", name)
            case [index, "_alias", *name]:
                return self._aliased(index, name)
            case ["_mapping"] | ["_settings"]:
                return 200, {name: {"mappings": {}} for name in self.indices}
            case [index, "_mapping" | "_settings"] | [index] if method in ("GET", "HEAD"):
                return 200, {name: {"mappings": {}} for name in self.concrete(index)}
            case [index] if method == "PUT":
                self.indices[index] = {}
                return 200, {"acknowledged": True, "index": index}
            case [index] if method == "DELETE":
                del self.indices[index]
                return 200, {"acknowledged": True}
        return 200, {"acknowledged": True}

    def _resolved(self, expression: str, wide: str) -> Any:
        streams = {part: name for name, parts in self.streams.items() for part in parts}

        def matching(names: Any) -> list[str]:
            pattern = "*" in expression
            shown = [each for each in names if not pattern or each not in self.hidden
                     or wide in ("all", "open,hidden")]  # fmt: skip
            return sorted(each for each in shown if fnmatchcase(each, expression))

        indices = [
            {"name": name, "attributes": ["open"],
             **({"data_stream": streams[name]} if name in streams else {})}
            for name in matching(self.indices)
        ]  # fmt: skip
        aliases = [{"name": name, "indices": self.aliases[name]} for name in matching(self.aliases)]
        return {"indices": indices, "aliases": aliases, "data_streams": [
            {"name": name, "backing_indices": self.streams[name], "timestamp_field": "@timestamp"}
            for name in matching(self.streams)
        ]}  # fmt: skip

    def concrete(self, expression: str) -> list[str]:
        names: list[str] = []
        for each in expression.split(","):
            found = self._resolved("*" if each in ("_all", "") else each, "open")
            names += [index["name"] for index in found["indices"]]
            names += [name for alias in found["aliases"] for name in alias["indices"]]
            names += [
                name for stream in found["data_streams"] for name in stream["backing_indices"]
            ]
            if not any(found.values()) and "*" not in each:
                raise KeyError(each)
        return list(dict.fromkeys(names))

    def _search(self, expression: str, body: Any, given: dict[str, str]) -> Any:
        pit = body.get("pit")
        names = self.pages[pit["id"]][1] if pit else self.concrete(expression)
        query = {"query_string": given["q"]} if "q" in given else body.get("query")
        found = [
            (name, identity, document)
            for name in names
            for identity, document in self.indices[name].items()
            if self._matches(document, query or {"match_all": {}})
            and all(self._matches(document, each) for each in filters(body.get("knn")))
        ]
        hits = [
            {"_index": name, "_id": identity, "_score": 1.0, **shown_source(document, body, given)}
            for name, identity, document in found
        ]
        answer: dict[str, Any] = {
            "took": 1, "timed_out": False, "_shards": _SHARDS,
            "hits": {"total": {"value": len(hits), "relation": "eq"}, "hits": hits},
        }  # fmt: skip
        for name, agg in (body.get("aggs") or {}).items():
            keys = [str(value_at(document, agg["terms"]["field"])) for _, _, document in found]
            buckets = [{"key": key, "doc_count": keys.count(key)} for key in sorted(set(keys))]
            answer.setdefault("aggregations", {})[name] = {"buckets": buckets}
        if "scroll" in given:
            answer["_scroll_id"] = self._page(hits[1:], None)
            answer["hits"]["hits"] = hits[:1]
        if pit:
            answer["pit_id"] = pit["id"]
        return answer

    def _matches(self, document: Any, query: Any) -> bool:
        [(kind, inner)] = query.items()
        if kind == "bool":
            return (
                all(self._matches(document, each)
                    for each in (*clauses(inner, "must"), *clauses(inner, "filter")))
                and not any(self._matches(document, each) for each in clauses(inner, "must_not"))
            )  # fmt: skip
        if kind == "hybrid":
            return any(self._matches(document, each) for each in inner["queries"])
        if kind == "terms":
            [(field, values)] = inner.items()
            if isinstance(values, dict):
                looked = self._doc(values["index"], values["id"])["_source"]
                values = [value_at(looked, values["path"])]
            stated = value_at(document, field)
            return any(
                each in values for each in (stated if isinstance(stated, list) else [stated])
            )
        if kind in ("term", "match"):
            [(field, value)] = inner.items()
            return bool(value_at(document, field) == value)
        if kind == "knn":
            return all(self._matches(document, each) for clause in inner.values()
                       for each in filters(clause))  # fmt: skip
        return True

    def _doc(self, index: str, identity: str) -> Any:
        [name] = self.concrete(index)
        found = self.indices[name].get(identity)
        if found is None:
            return {"_index": name, "_id": identity, "found": False}
        return {"_index": name, "_id": identity, "found": True, "_source": found}

    def _scrolled(self, method: str, token: Any) -> Answer:
        if method == "DELETE":
            return 200, {"succeeded": True, "num_freed": 1}
        hits, _ = self.pages[token]
        self.pages[token] = (hits[1:], None)
        total = {"value": len(hits), "relation": "eq"}
        found = {"total": total, "hits": hits[:1]}
        return 200, {"_scroll_id": token, "_shards": _SHARDS, "hits": found}

    def _msearch(self, default: str, lines: list[Any]) -> Any:
        responses = []
        for head, body in zip(lines[::2], lines[1::2], strict=True):
            stated = head.get("index", "*" if default == "_msearch" else default)
            expression = ",".join(stated) if isinstance(stated, list) else stated
            try:
                responses.append({**self._search(expression, body, {}), "status": 200})
            except KeyError:
                responses.append({"error": {"type": "index_not_found_exception"}, "status": 404})
        return {"took": 1, "responses": responses}

    def _bulk(self, default: str, lines: list[Any]) -> Any:
        items = []
        rest = iter(lines)
        for line in rest:
            [(action, head)] = line.items()
            name = head.get("_index", default)
            if action != "delete":
                self.indices.setdefault(name, {})[head.get("_id", "x")] = next(rest)
            items.append({action: {"_index": name, "_id": head.get("_id"), "status": 201}})
        return {"took": 1, "errors": False, "items": items}

    def _aliased(self, index: str, name: list[str]) -> Answer:
        indices: dict[str, Any] = {each: {"aliases": {}} for each in self.concrete(index)}
        for alias, targets in self.aliases.items():
            for each in targets:
                if each in indices and (not name or fnmatchcase(alias, name[0])):
                    indices[each]["aliases"][alias] = {}
        if name:
            indices = {each: value for each, value in indices.items() if value["aliases"]}
        return (200, indices) if indices or not name else (404, {"error": "missing", "status": 404})

    def _page(self, hits: list[Any], rest: Any) -> str:
        token = f"token-{len(self.pages)}"
        self.pages[token] = (hits, rest)
        return token
