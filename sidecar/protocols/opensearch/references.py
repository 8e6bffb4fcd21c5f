"""The indices that a body names beside the one it is asked of, at any depth, and what hides one
(data-sources.md 5.3).

A query may look up terms, a shape or a stored document in any index. Where a name can stand is told
by its key and not by a grammar of all queries: plugins add queries of their own, and a look-up must
not pass because its surroundings are new. So a document's field called `index` may be taken for a
reference, and never the other way round. What is not a query but becomes one on the server, a
template or an encoded query, is `Unresolved`. Pure.
"""

from collections.abc import Iterator
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.indices import item, items

SEARCH = frozenset(
    (
        "_source",
        "aggregations",
        "aggs",
        "collapse",
        "derived",
        "docvalue_fields",
        "explain",
        "fields",
        "from",
        "highlight",
        "include_named_queries_score",
        "index_filter",
        "indices_boost",
        "knn",
        "max_docs",
        "conflicts",
        "min_score",
        "pit",
        "post_filter",
        "profile",
        "query",
        "rank",
        "rescore",
        "retriever",
        "runtime_mappings",
        "script",
        "script_fields",
        "search_after",
        "search_pipeline",
        "seq_no_primary_term",
        "size",
        "slice",
        "sort",
        "stats",
        "stored_fields",
        "suggest",
        "terminate_after",
        "timeout",
        "track_scores",
        "track_total_hits",
        "verbose_pipeline",
        "version",
    )
)
"""What a search may say. Not `ext`, which each plugin fills as it likes."""

_NAMES_INDEX = frozenset(("index", "_index"))

# Where a shape is looked up that names no index (AbstractGeometryQueryBuilder).
_SHAPES = "shapes"

_HIDING = {
    "wrapper": "query",
    "agentic": "query_text",
    "phrase": "collate",
    "template": None,
}


def of_search(body: dict[str, Any] | None) -> set[str]:
    """The names of a search's body. Raises `Unresolved` and `Malformed`."""
    if body is None:
        return set()
    for key in body:
        if key not in SEARCH:
            raise Unresolved(f"what `{key[:64]}` does in a search is not known here")
    if isinstance(body.get("search_pipeline"), dict):
        raise Unresolved("what a search pipeline of the request's own does can't be told")
    found = of_query(body)
    found.update(_boosted(body.get("indices_boost")))
    return found


def of_query(body: Any) -> set[str]:
    """The names in a query, or in anything that holds queries."""
    found: set[str] = set()
    pending = [body]
    while pending:
        node = pending.pop()
        if type(node) is dict:
            found.update(_named(node))
            pending += node.values()
        elif type(node) is list:
            pending += [each for each in node if type(each) in (dict, list)]
    return found


def _named(node: dict[str, Any]) -> Iterator[str]:
    for key, value in node.items():
        if key in _NAMES_INDEX:
            # Alone it is a field of that name: a look-up says more than where.
            if len(node) > 1 and not isinstance(value, dict):
                yield from _name(value)
        elif key == "target_index":
            yield from _name(value)
        elif key == "indexed_shape":
            if isinstance(value, dict) and "index" not in value:
                yield _SHAPES
            elif isinstance(value, dict):
                yield from _name(value["index"])
        elif key in _HIDING and isinstance(value, dict):
            told = _HIDING[key]
            if told is None or told in value:
                raise Unresolved(f"what `{key}` becomes on the server can't be told")


def _name(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif not isinstance(node, dict):
            yield from items(node)


def _boosted(value: Any) -> Iterator[str]:
    """`indices_boost`: a list of objects of one member, or one object."""
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict):
            for name in entry:
                yield item(name)
        elif entry is not None:
            raise Malformed("`indices_boost` is not made of names")
