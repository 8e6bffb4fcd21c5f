"""A minimal Milvus: the routes and forms of its REST API, over entities in memory. It is not the
real server, which has no wheel.

It knows no expressions but the condition on levels; tests look at what is forwarded."""

import json
import re
from typing import Any

MARK = "level"
_CONDITION = re.compile(r'level in \[("\w+"(?:, "\w+")*)\]')
NOT_FOUND = {"code": 1600, "message": "alias not found"}


class Server:
    """`entities` maps each database and collection to its entities; `aliases` each alias to its
    collection."""

    def __init__(self, *levels: Any) -> None:
        names = [("default", "open_docs"), ("default", "shut_docs"), ("other", "open_docs")]
        self.entities = {
            name: [_entity(name[1], n, level) for n, level in enumerate(levels, 1)]
            for name in names
        }
        self.aliases = {("default", "open_alias"): "shut_docs", ("default", "docs"): "open_docs"}

    def answer(self, _method: str, target: str, raw: bytes) -> tuple[int, Any]:
        """The script for `scripted`."""
        body = json.loads(raw)
        database = body.get("dbName") or "default"
        name = body.get("collectionName") or ""
        own = self.aliases.get((database, name), name)
        match target.removeprefix("/v2/vectordb/").rpartition("/")[::2]:
            case "aliases", "describe":
                behind = self.aliases.get((database, body["aliasName"]))
                if behind is None:
                    return 200, NOT_FOUND
                return 200, {"code": 0, "data": {"dbName": database, "collectionName": behind}}
            case "aliases", "list":
                return 200, {"code": 0, "data": [
                    alias for (_, alias), held in self.aliases.items() if held == own
                ]}  # fmt: skip
            case "databases", "list":
                return 200, {"code": 0, "data": ["default", "other"]}
            case "collections", "list":
                return 200, {"code": 0, "data": [
                    held for within, held in self.entities if within == database
                ]}  # fmt: skip
            case "partitions", "list":
                return 200, {"code": 0, "data": ["_default", "ours", "theirs"]}
            case "entities", "search" | "hybrid_search" | "advanced_search":
                found = self._found(database, own, body)
                return 200, {"code": 0, "cost": 0, "data": found, "topks": [len(found)]}
            case "entities", "query" | "get":
                found = self._found(database, own, {"outputFields": ["*"], **body})
                return 200, {"code": 0, "cost": 0, "data": found}
        return 200, {"code": 0, "data": {}}

    def _found(self, database: str, name: str, body: Any) -> list[Any]:
        fields = ["id", *(body.get("outputFields") or [])]
        parts = [body, *body.get("search", [])]
        conditions = [_CONDITION.search(each.get("filter") or "") for each in parts]
        levels = [set(json.loads(f"[{found[1]}]")) for found in conditions if found]
        return [
            {key: value for key, value in each.items() if "*" in fields or key in fields}
            for each in self.entities[database, name]
            if all(_holds(each.get(MARK), known) for known in levels)
        ]


def _entity(name: str, number: int, level: Any) -> dict[str, Any]:
    made = {"id": number, "text": f"text of {name} {number}"}
    return made if level is None else {**made, MARK: level}


def _holds(level: Any, known: set[str]) -> bool:
    # A list holds if one of its words does, so that the check of the response has work to do.
    return bool(set(level) & known) if isinstance(level, list) else level in known
