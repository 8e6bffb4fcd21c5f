"""A minimal Qdrant: the routes and forms of its HTTP description, executed by the local mode of its
client library. It is not the real server, which is not available as a wheel.

The real server accepts more than its description (an array in place of an object); this one
doesn't. Tests of that look at what is forwarded."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from qdrant_client import QdrantClient
from qdrant_client import models as m

VECTORS = m.VectorParams(size=2, distance=m.Distance.DOT)

# The default of `with_payload` for each route.
_UNASKED = {"scroll": True, "": True}


class Server:
    """One Qdrant in memory; `local` reaches it without the listener."""

    def __init__(self) -> None:
        self.local = QdrantClient(":memory:")

    def create(self, name: str, *levels: Any) -> None:
        """A collection of points that hold its name, each with its level, or without one if the
        level is None."""
        self.local.create_collection(name, vectors_config=VECTORS)
        for place, level in enumerate(levels, 1):
            payload: dict[str, Any] = {"text": f"text of {name} {place}", "author": f"of {name}"}
            if level is not None:
                payload["acl"] = {"level": level, "owner": "ada"}
            point = m.PointStruct(id=place, vector=[1.0, place / 10], payload=payload)
            self.local.upsert(name, [point])

    def alias(self, name: str, collection: str) -> None:
        change = m.CreateAlias(collection_name=collection, alias_name=name)
        self.local.update_collection_aliases([m.CreateAliasOperation(create_alias=change)])

    def answer(self, method: str, target: str, raw: bytes) -> tuple[int, Any]:
        """The script for `scripted`."""
        path = target.partition("?")[0]
        if path == "/":
            return 200, {"title": "qdrant - minimal", "version": "1.19.0"}
        segments = [unquote(part) for part in path[1:].split("/")]
        try:
            result = self._result(method, segments, json.loads(raw) if raw else {})
        except (ValueError, KeyError) as error:
            return 404, {"status": {"error": f"Not found: {error}"}, "time": 0.0}
        return 200, {"result": _plain(result), "status": "ok", "time": 0.0}

    def _result(self, method: str, segments: list[str], body: Any) -> Any:
        local = self.local
        match method, segments:
            case "GET", ["collections"]:
                return local.get_collections()
            case "GET", ["aliases"]:
                return local.get_aliases()
            case "GET", ["collections", name]:
                return local.get_collection(name)
            case "GET", ["collections", name, "exists"]:
                return {"exists": local.collection_exists(name)}
            case "GET", ["collections", name, "aliases"]:
                return local.get_collection_aliases(name)
            case "PUT", ["collections", name]:
                return local.create_collection(name, vectors_config=VECTORS)
            case "DELETE", ["collections", name]:
                return local.delete_collection(name)
            case "PUT", ["collections", name, "points"]:
                points = m.PointsList.model_validate(body).points
                return local.upsert(name, points)
            case "GET", ["collections", name, "points", identity]:
                return local.retrieve(name, [int(identity)])[0]
            case "POST", ["collections", name, "points", *what]:
                return self._points(name, what, body)
            case "POST", ["collections", name, "facet"]:
                return local.facet(name, body["key"])
        raise KeyError(f"{method} /{'/'.join(segments)}")

    def _points(self, name: str, what: list[str], body: Any) -> Any:
        if what[-1:] == ["batch"]:
            return [self._points(name, what[:-1], each) for each in body["searches"]]
        verb = "/".join(what)
        body.setdefault("with_payload", _UNASKED.get(verb, False))
        return _VERBS[verb](self.local, name, body)


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return [_plain(each) for each in result]
    return (
        result
        if isinstance(result, (dict, bool))
        else result.model_dump(mode="json", exclude_none=True)
    )


def _query(local: QdrantClient, name: str, body: Any) -> Any:
    request = m.QueryRequest.model_validate(body)
    return local.query_points(
        name,
        query=request.query,
        prefetch=request.prefetch,
        query_filter=request.filter,
        limit=request.limit or 10,
        with_payload=request.with_payload or False,
        lookup_from=request.lookup_from,
    )


def _groups(local: QdrantClient, name: str, body: Any) -> Any:
    request = m.QueryGroupsRequest.model_validate(body)
    return local.query_points_groups(
        name,
        group_by=request.group_by,
        query=request.query,
        query_filter=request.filter,
        prefetch=request.prefetch,
        with_payload=request.with_payload or False,
        with_lookup=request.with_lookup,
        lookup_from=request.lookup_from,
    )


def _legacy(*members: str) -> Callable[[QdrantClient, str, Any], Any]:
    """The routes that predate `points/query`: they return a list."""

    def run(local: QdrantClient, name: str, body: Any) -> Any:
        inner = {each: body.pop(each) for each in members if each in body}
        body["query"] = inner["vector"] if "vector" in inner else {members[-1]: inner}
        inner.pop(members[-1], None)
        return _query(local, name, body).points

    return run


def _scroll(local: QdrantClient, name: str, body: Any) -> Any:
    request = m.ScrollRequest.model_validate(body)
    points, following = local.scroll(
        name,
        scroll_filter=request.filter,
        limit=request.limit or 10,
        with_payload=request.with_payload or False,
    )
    return {"points": _plain(points), "next_page_offset": following}


def _retrieve(local: QdrantClient, name: str, body: Any) -> Any:
    request = m.PointRequest.model_validate(body)
    return local.retrieve(name, request.ids, request.with_payload or False)


_VERBS: dict[str, Callable[[QdrantClient, str, Any], Any]] = {
    "query": _query,
    "query/groups": _groups,
    "search": _legacy("vector"),
    "recommend": _legacy("positive", "negative", "recommend"),
    "discover": _legacy("target", "context", "discover"),
    "scroll": _scroll,
    "": _retrieve,
    "count": lambda local, name, body: local.count(
        name, m.CountRequest.model_validate({"filter": body.get("filter")}).filter
    ),
}
