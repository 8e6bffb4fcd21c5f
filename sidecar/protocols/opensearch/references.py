"""Finds the indices that a body names at any depth (`protocols/RULES.md`, OpenSearch).

A query may look up terms, a shape or a stored document in any index. A document's field called
`index` may be taken for the index of a look-up, but never the reverse. A body that becomes a query
only on the server, such as a template or an encoded query, is `Unresolved`. Pure.
"""

from collections.abc import Iterator
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.index_names import parse_name, parse_names

_SEARCH_MEMBERS = frozenset((
    "_source", "aggregations", "aggs", "collapse", "derived", "docvalue_fields", "explain",
    "fields", "from", "highlight", "include_named_queries_score", "index_filter", "indices_boost",
    "knn", "max_docs", "conflicts", "min_score", "pit", "post_filter", "profile", "query", "rank",
    "rescore", "retriever", "runtime_mappings", "script", "script_fields", "search_after",
    "search_pipeline", "seq_no_primary_term", "size", "slice", "sort", "stats", "stored_fields",
    "suggest", "terminate_after", "timeout", "track_scores", "track_total_hits", "verbose_pipeline",
    "version",
))  # fmt: skip
"""The members of a search. `ext` is missing: each plugin gives it a meaning of its own."""

_INDEX_KEYS = frozenset(("index", "_index"))

# The index of a shape look-up that names none (AbstractGeometryQueryBuilder).
_DEFAULT_SHAPE_INDEX = "shapes"

# Queries that become another query on the server if they have this member; None means always.
_RENDERED_ON_SERVER = {
    "wrapper": "query",
    "agentic": "query_text",
    "phrase": "collate",
    "template": None,
}


def names_in_search(body: dict[str, Any] | None, budget: Budget) -> set[str]:
    """The names in a search's body. Raises `Unresolved` and `Malformed`, as soon as the request of
    this budget has ended too."""
    if body is None:
        return set()
    for key in body:
        if key not in _SEARCH_MEMBERS:
            raise Unresolved(f"`{key[:64]}` is not supported in a search")
    # A pipeline in the request could change the query on the server. A stored one is the
    # operator's.
    if isinstance(body.get("search_pipeline"), dict):
        raise Unresolved("a search pipeline in the request is not supported: name a stored one")
    found = names_in_query(body, budget)
    found.update(_boosted_names(body.get("indices_boost"), budget))
    return found


def names_in_query(body: Any, budget: Budget) -> set[str]:
    """The names in a query, or in anything that contains queries."""
    found: set[str] = set()
    pending = [body]
    while pending:
        budget.check()
        node = pending.pop()
        if type(node) is dict:
            found.update(_names_in_object(node, budget))
            pending += node.values()
        elif type(node) is list:
            pending += [each for each in node if type(each) in (dict, list)]
    return found


def _names_in_object(node: dict[str, Any], budget: Budget) -> Iterator[str]:
    # Go by the keys, and not by a grammar of all queries: plugins add queries of their own, and a
    # look-up must not be missed because the query around it is new.
    for key, value in node.items():
        if key in _INDEX_KEYS:
            # If it is the only member, it is a field of that name: a look-up has other members too.
            if len(node) > 1 and not isinstance(value, dict):
                yield from _names_in_value(value, budget)
        # The index of a runtime field of type `lookup` (Elasticsearch).
        elif key == "target_index":
            yield from _names_in_value(value, budget)
        elif key == "indexed_shape":
            if isinstance(value, dict) and "index" not in value:
                yield _DEFAULT_SHAPE_INDEX
            elif isinstance(value, dict):
                yield from _names_in_value(value["index"], budget)
        elif key in _RENDERED_ON_SERVER and isinstance(value, dict):
            member = _RENDERED_ON_SERVER[key]
            if member is None or member in value:
                raise Unresolved(f"`{key}` becomes a query on the server: its indices are unknown")


def _names_in_value(value: Any, budget: Budget) -> Iterator[str]:
    pending = [value]
    while pending:
        budget.check()
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif not isinstance(node, dict):
            yield from parse_names(node)


def _boosted_names(value: Any, budget: Budget) -> Iterator[str]:
    """`indices_boost` is a list of objects with one member each, or one object."""
    for entry in value if isinstance(value, list) else [value]:
        budget.check()
        if isinstance(entry, dict):
            for name in entry:
                yield parse_name(name)
        elif entry is not None:
            raise Malformed("`indices_boost` must be an object or a list of objects")
