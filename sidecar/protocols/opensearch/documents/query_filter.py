"""Adds a condition to a search that withholds documents by their levels, if the search allows it.

The condition is put around the whole query, so that nothing the caller writes can undo it. It is
also put inside each vector search, which would otherwise find too few neighbours. A search that may
reveal documents its query doesn't match is not filtered: it is judged as if it returned the worst.
Pure. `result_filter.py` checks the response.
"""

from collections.abc import Iterator
from typing import Any

from policies.definitions.model import SENSITIVITIES
from sidecar.protocols.messages import Visibility
from sidecar.protocols.opensearch.documents.source_filtering import (
    ShownFields,
    include_field,
    shown_fields,
)
from sidecar.protocols.opensearch.parameters import PREVENTS_FILTERING
from sidecar.protocols.shared.document_levels import DEFAULT_LEVEL

# Members of a search that reveal nothing about documents the query doesn't match.
_MEMBERS = frozenset((
    "_source", "aggregations", "aggs", "collapse", "docvalue_fields", "fields", "from", "highlight",
    "include_named_queries_score", "knn", "min_score", "pit", "post_filter", "query", "rescore",
    "retriever", "script_fields", "search_after", "search_pipeline", "seq_no_primary_term", "size",
    "slice", "sort", "stats", "terminate_after", "timeout", "track_scores", "track_total_hits",
    "version",
))  # fmt: skip

# At any depth: queries that match by the contents of other documents, and aggregations that count
# documents outside the query.
_REACHES_BEYOND = frozenset((
    "agentic", "background_filter", "children", "global", "has_child", "has_parent",
    "more_like_this", "parent", "parent_id", "percolate", "pinned", "rule", "rule_query",
    "significant_terms", "significant_text", "template", "wrapper",
))  # fmt: skip

# Deeper vector searches get no condition of their own: the one around the query is enough.
_MAX_QUERY_DEPTH = 16
# As `strict_body.MAX_DEPTH`, so that the search can be written with the condition in it.
_MAX_DEPTH = 200

_RETRIEVERS = frozenset(("knn", "linear", "rrf", "standard", "text_similarity_reranker"))


def can_filter(body: dict[str, Any] | None, query: dict[str, str], field: str) -> bool:
    """Whether the search can withhold documents by their levels in `field`. The caller has checked
    that it names no further index."""
    if body is None or not PREVENTS_FILTERING.isdisjoint(query):
        return False
    if not body.keys() <= _MEMBERS or not isinstance(body.get("search_pipeline", ""), str):
        return False
    if shown_fields(body.get("_source"), field) is None:
        return False
    return all(map(_stays_within, _objects(body))) and _retrievers_keep_filter(body)


def _objects(body: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object in a search, with its depth."""
    pending: list[tuple[int, Any]] = [(1, body[key]) for key in body if key != "_source"]
    while pending:
        depth, node = pending.pop()
        if type(node) is dict:
            yield depth, node
        inner = node.values() if type(node) is dict else node if type(node) is list else ()
        pending += [(depth + 1, each) for each in inner if type(each) in (dict, list)]


def _stays_within(at: tuple[int, dict[str, Any]]) -> bool:
    """Whether an object reveals only documents that match the query, and can be written again."""
    depth, node = at
    if depth > _MAX_DEPTH or not _REACHES_BEYOND.isdisjoint(node):
        return False
    # With a `min_doc_count` of 0, terms that occur only in withheld documents would appear in the
    # response, with a count of 0.
    least = node.get("min_doc_count", 1)
    if type(least) is not int or least < 1:
        return False
    # A hit within the response shows its level only if its fields are not selected.
    for key in ("inner_hits", "top_hits"):
        for inner in _each_object(node.get(key)):
            if not {"_source", "stored_fields"}.isdisjoint(inner):
                return False
    return True


def _each_object(value: Any) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield each


def add_filter(body: dict[str, Any], visibility: Visibility) -> tuple[dict[str, Any], ShownFields]:
    """The search with the condition in it, and what the caller asked to see of its documents."""
    assert visibility.levels is not None
    made = dict(body)
    only = level_condition(visibility.field, visibility.levels)
    if "retriever" in made:
        made["retriever"] = _filter_retriever(made["retriever"], only)
    elif "knn" in made:
        knn = made["knn"]
        several = isinstance(knn, list)
        found = [_filter_knn(each, only) for each in (knn if several else [knn])]
        made["knn"] = found if several else found[0]
    if "query" in made or not ("retriever" in made or "knn" in made):
        made["query"] = filter_query(made.get("query"), only)
    shown = shown_fields(made.get("_source"), visibility.field)
    assert shown is not None
    if not shown.source:
        made["_source"] = [visibility.field]
    elif not shown.level:
        made["_source"] = include_field(made["_source"], visibility.field)
    return made, shown


def level_condition(field: str, levels: tuple[str, ...]) -> dict[str, Any]:
    """Matches documents with one of `levels` and no other: a field may have several values. Those
    without a level count as `critical`."""
    others = [level for level in SENSITIVITIES if level not in levels]
    condition: dict[str, Any] = {"must_not": [{"terms": {field: others}}]}
    if DEFAULT_LEVEL not in levels:
        condition["filter"] = [{"terms": {field: list(levels)}}]
    return {"bool": condition}


def filter_query(query: Any, only: dict[str, Any]) -> dict[str, Any]:
    """`query`, limited to documents that `only` matches."""
    if isinstance(query, dict) and list(query) == ["hybrid"] and isinstance(query["hybrid"], dict):
        # A hybrid query must be outermost (OpenSearch, hybrid search) and can't contain another,
        # so the condition goes around each of its parts instead.
        hybrid = dict(query["hybrid"])
        if isinstance(hybrid.get("queries"), list):
            queries = [_filter_vectors(each, only) for each in hybrid["queries"]]
            hybrid["queries"] = [{"bool": {"must": [each], "filter": [only]}} for each in queries]
            return {"hybrid": hybrid}
    inner = {"match_all": {}} if query is None else _filter_vectors(query, only)
    return {"bool": {"must": [inner], "filter": [only]}}


def _filter_vectors(query: Any, only: dict[str, Any], depth: int = 0) -> Any:
    """`query` with the condition inside its vector searches, where all of their results count."""
    if not isinstance(query, dict) or depth > _MAX_QUERY_DEPTH:
        return query
    made = dict(query)
    for key in ("knn", "neural"):
        clause = made.get(key)
        if isinstance(clause, dict) and isinstance(clause.get("field"), str):
            made[key] = _filter_knn(clause, only)
        elif isinstance(clause, dict) and len(clause) == 1:
            [(field, inner)] = clause.items()
            made[key] = {field: _filter_opensearch_knn(inner, only)}
    clauses = made.get("bool")
    if isinstance(clauses, dict):
        made["bool"] = {
            # Not `must_not`, where the condition would change which documents are excluded.
            key: _filter_each(value, only, depth) if key in ("must", "should", "filter") else value
            for key, value in clauses.items()
        }
    return made


def _filter_each(value: Any, only: dict[str, Any], depth: int) -> Any:
    if isinstance(value, list):
        return [_filter_vectors(each, only, depth + 1) for each in value]
    return _filter_vectors(value, only, depth + 1)


def _filter_knn(clause: Any, only: dict[str, Any]) -> Any:
    """Elasticsearch's `filter` is one query, or a list of which all must match."""
    if not isinstance(clause, dict):
        return clause
    own = clause.get("filter", [])
    return {**clause, "filter": [*(own if isinstance(own, list) else [own]), only]}


def _filter_opensearch_knn(clause: Any, only: dict[str, Any]) -> Any:
    """OpenSearch's `filter` is one query."""
    if not isinstance(clause, dict):
        return clause
    own = clause.get("filter")
    return {**clause, "filter": only if own is None else {"bool": {"filter": [own, only]}}}


def _filter_retriever(retriever: dict[str, Any], only: dict[str, Any]) -> dict[str, Any]:
    """The outermost retriever's `filter` applies to all within it."""
    [(kind, inner)] = retriever.items()
    return {kind: _filter_knn(inner, only)}


def _retrievers_keep_filter(body: dict[str, Any]) -> bool:
    """Whether the outermost retriever's filter applies to every retriever of a search."""
    if "retriever" in body and ("query" in body or "knn" in body):
        return False
    pending = [body["retriever"]] if "retriever" in body else []
    while pending:
        node = pending.pop()
        if not isinstance(node, dict) or len(node) != 1:
            return False
        [(kind, inner)] = node.items()
        if kind not in _RETRIEVERS or not isinstance(inner, dict):
            return False
        if "retriever" in inner:
            pending.append(inner["retriever"])
        several = inner.get("retrievers", [])
        if not isinstance(several, list):
            return False
        for each in several:
            # `linear` wraps each retriever together with its weight.
            wrapped = isinstance(each, dict) and "retriever" in each
            pending.append(each["retriever"] if wrapped else each)
    return True
