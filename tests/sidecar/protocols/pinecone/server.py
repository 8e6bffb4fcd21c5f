"""A minimal Pinecone index: the data plane's described routes and forms, over records in memory. It
is not the real service, which has no server to download."""

import json
from typing import Any
from urllib.parse import parse_qs, unquote

MARK = "level"


class Server:
    """`records` maps each namespace to its records: id -> metadata."""

    def __init__(self, *levels: Any, namespaces: tuple[str, ...] = ("__default__", "open", "shut")):
        self.records = {
            name: {
                str(n): {"text": f"text of {name} {n}"} | ({} if level is None else {MARK: level})
                for n, level in enumerate(levels, 1)
            }
            for name in namespaces
        }

    def answer(self, method: str, target: str, raw: bytes) -> tuple[int, Any]:
        """The script for `scripted`."""
        path, _, query = target.partition("?")
        given = {name: values[-1] for name, values in parse_qs(query).items()}
        body: Any = json.loads(raw) if raw and raw.lstrip()[:1] == b"{" else {}
        match method, [unquote(part) for part in path[1:].split("/")]:
            case "POST", ["query"]:
                return 200, self._query(body)
            case "GET", ["vectors", "fetch"]:
                found = self._held(given, None)
                return 200, _vectors(found, parse_qs(query)["ids"])
            case "GET", ["vectors", "list"]:
                ids = [{"id": key} for key in self._held(given, None)]
                return 200, {"vectors": ids, "pagination": {"next": "more"}}
            case "POST", ["vectors", "fetch_by_metadata"]:
                found = self._held(body, body["filter"])
                return 200, {**_vectors(found, list(found)), "pagination": {"next": "page"}}
            case "POST", ["records", "namespaces", name, "search"]:
                return 200, self._search(name, body)
            case "POST", ["namespaces", name, "documents", "search"]:
                return 200, self._documents(name, body)
            case "POST", ["namespaces", name, "documents", "fetch"]:
                return 200, self._fetched(name, body)
            case "POST", ["namespaces", _, "documents", "list"]:
                return 200, {"documents": [], "namespace": "", "usage": {}}
            case "GET", ["namespaces"]:
                names = [{"name": name, "record_count": "1"} for name in self.records]
                return 200, {"namespaces": names, "total_count": len(names)}
            case "GET", ["namespaces", name]:
                return 200, {"name": name, "record_count": "1"}
            case _, ["describe_index_stats"]:
                counts = {name: {"vectorCount": len(each)} for name, each in self.records.items()}
                return 200, {"dimension": 2, "namespaces": counts, "indexFullness": 0.1,
                             "memory_fullness": 0.2,
                             "totalVectorCount": sum(map(len, self.records.values()))}  # fmt: skip
        return 200, {"upsertedCount": 1}

    def _held(self, named: Any, condition: Any) -> dict[str, Any]:
        found = self.records.get(named.get("namespace") or "__default__", {})
        return {key: each for key, each in found.items() if _holds(condition, each)}

    def _query(self, body: Any) -> Any:
        matches = [
            {"id": key, "score": 1.0} | ({"metadata": each} if body.get("includeMetadata") else {})
            for key, each in self._held(body, body.get("filter")).items()
        ]
        return {"matches": matches, "namespace": body.get("namespace", ""), "results": []}

    def _search(self, name: str, body: Any) -> Any:
        hits = [
            {"_id": key, "_score": 1.0, "fields": _chosen(each, body.get("fields") or ["*"])}
            for key, each in self._held({"namespace": name}, body["query"].get("filter")).items()
        ]
        return {"result": {"hits": hits}, "usage": {"read_units": 1}}

    def _documents(self, name: str, body: Any) -> Any:
        found = self._held({"namespace": name}, body.get("filter"))
        matches = [
            {"_id": key, "_score": 1.0, **_chosen(each, body.get("include_fields") or [])}
            for key, each in found.items()
        ]
        return {"matches": matches, "namespace": name, "usage": {"read_units": 1}}

    def _fetched(self, name: str, body: Any) -> Any:
        found = self._held({"namespace": name}, body.get("filter"))
        documents = {
            key: {"_id": key, **_chosen(each, body.get("include_fields") or ["*"])}
            for key, each in found.items()
            if key in body.get("ids", found)
        }
        return {"documents": documents, "namespace": name, "usage": {"read_units": 1}}


def _vectors(found: dict[str, Any], ids: list[str]) -> dict[str, Any]:
    vectors = {key: {"id": key, "values": [1.0], "metadata": found[key]} for key in ids}
    return {"vectors": vectors, "namespace": "", "usage": {"readUnits": 1}}


def _chosen(record: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if "*" in fields or key in fields}


def _holds(condition: Any, record: dict[str, Any]) -> bool:
    """Pinecone compares a list of strings with any of them."""
    for key, given in (condition or {}).items():
        if key == "$and":
            if not all(_holds(each, record) for each in given):
                return False
            continue
        held = record.get(key)
        values = held if isinstance(held, list) else [held]
        if "$in" in given and not set(values) & set(given["$in"]):
            return False
        if "$eq" in given and given["$eq"] not in values:
            return False
    return True
