"""Filters a search by the documents' levels: adds a condition that withholds documents, if the
search allows it, and adds the level to the fields that the search returns (`_source`).
`result_filter.py` checks the response.

A search that may reveal documents that its query doesn't match is not filtered: it is judged at
`critical`, as if it returned the most sensitive document.
"""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from policies.definitions.model import SENSITIVITIES
from sidecar.protocols.opensearch.request_parts import PREVENTS_FILTERING
from sidecar.protocols.protocol import Visibility
from sidecar.protocols.shared.responses import DEFAULT_LEVEL
from sidecar.protocols.strict_body import Budget


class ShownFields(NamedTuple):
    """Says which parts of a document the caller asked to see. Anything else in the response is
    there because the sidecar added it to the request, and is removed again."""

    source: bool = True
    """True if the caller sees `_source` at all."""
    level: bool = True
    """True if the caller sees the document's level in `_source`."""


def shown_fields(given: Any, field: str) -> ShownFields | None:
    """Return the parts of a document that a search's `_source` (`given`) asks for; None if the
    level in `field` can't be added to them."""
    if given is None or given is True:
        return ShownFields()
    if given is False:
        return ShownFields(source=False, level=False)
    includes: Any = given
    if isinstance(given, dict):
        if not given.keys() <= {"includes", "include", "excludes", "exclude"}:
            return None
        # With two spellings of one member, it isn't known which one the server uses.
        if len(given) > len({key.removesuffix("s") for key in given}):
            return None
        excludes = _names(given.get("excludes", given.get("exclude", [])))
        # `excludes` wins over `includes`, so the level can't be added.
        if excludes is None or any(_covers(name, field) for name in excludes):
            return None
        includes = given.get("includes", given.get("include", []))
    names = _names(includes)
    if names is None:
        return None
    # Without any names, every field is included.
    return ShownFields(level=not names or any(_covers(name, field) for name in names))


def include_field(given: Any, field: str) -> Any:
    if isinstance(given, dict):
        key = "includes" if "includes" in given else "include"
        return {**given, key: [*(_names(given[key]) or ()), field]}
    return [*(_names(given) or ()), field]


def _names(value: Any) -> list[str] | None:
    names = [value] if isinstance(value, str) else value
    texts = isinstance(names, list) and all(isinstance(each, str) for each in names)
    return names if texts else None


def _covers(name: str, field: str) -> bool:
    """Return whether a name in `_source` includes `field`, because it names the field or an object
    around it. `*` is the only wildcard."""
    parts = field.split(".")
    # `fnmatchcase` has two more wildcards: escape them.
    pattern = name.replace("[", "[[]").replace("?", "[?]")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))


# Members of a search that reveal nothing about documents the query doesn't match.
_MEMBERS = frozenset((
    "_source", "aggregations", "aggs", "collapse", "docvalue_fields", "fields", "from", "highlight",
    "include_named_queries_score", "knn", "min_score", "pit", "post_filter", "query", "rescore",
    "retriever", "script_fields", "search_after", "search_pipeline", "seq_no_primary_term", "size",
    "slice", "sort", "stats", "terminate_after", "timeout", "track_scores", "track_total_hits",
    "version",
))  # fmt: skip

# Names refused at any depth, whatever they mean there: queries that match by the contents of other
# documents, and aggregations that count documents outside the query.
_REACHES_BEYOND = frozenset((
    "agentic", "background_filter", "children", "global", "has_child", "has_parent",
    "more_like_this", "parent", "parent_id", "percolate", "pinned", "rule", "rule_query",
    "significant_terms", "significant_text", "template", "wrapper",
))  # fmt: skip

# Vector searches below this depth get no condition of their own: the one around the query is
# enough.
_MAX_QUERY_DEPTH = 16
# Like `strict_body.MAX_DEPTH`, so that the search can be serialized with the condition in it.
_MAX_DEPTH = 200

_RETRIEVERS = frozenset(("knn", "linear", "rrf", "standard", "text_similarity_reranker"))


def can_filter(
    body: dict[str, Any] | None, query: dict[str, str], field: str, budget: Budget
) -> bool:
    """Return whether a condition on the levels in `field` can be added to the search so that it
    withholds documents reliably. The caller must have checked that the search names no other
    index."""
    if body is None or not PREVENTS_FILTERING.isdisjoint(query):
        return False
    if not body.keys() <= _MEMBERS or not isinstance(body.get("search_pipeline", ""), str):
        return False
    # The check of the response needs the level in `_source`.
    if shown_fields(body.get("_source"), field) is None:
        return False
    return all(map(_stays_within, _objects(body, budget))) and _retrievers_keep_filter(body)


def _objects(body: dict[str, Any], budget: Budget) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield every JSON object in a search, with its depth, except in `_source`, which holds names
    of fields only."""
    pending: list[tuple[int, Any]] = [(1, body[key]) for key in body if key != "_source"]
    while pending:
        budget.check()
        depth, node = pending.pop()
        if type(node) is dict:
            yield depth, node
        inner = node.values() if type(node) is dict else node if type(node) is list else ()
        pending += [(depth + 1, each) for each in inner if type(each) in (dict, list)]


def _stays_within(at: tuple[int, dict[str, Any]]) -> bool:
    """Return whether an object (given with its depth) reveals only documents that match the query.
    False also if it is nested too deeply to be serialized."""
    depth, node = at
    if depth > _MAX_DEPTH or not _REACHES_BEYOND.isdisjoint(node):
        return False
    # With a `min_doc_count` of 0, terms that occur only in withheld documents would appear in the
    # response, with a count of 0.
    minimum = node.get("min_doc_count", 1)
    if type(minimum) is not int or minimum < 1:
        return False
    # Inner hits show their level only if the request doesn't select their fields.
    for inner in (node.get("inner_hits"), node.get("top_hits")):
        for each in inner if isinstance(inner, list) else [inner]:
            if isinstance(each, dict) and not {"_source", "stored_fields"}.isdisjoint(each):
                return False
    return True


def add_filter(body: dict[str, Any], visibility: Visibility) -> tuple[dict[str, Any], ShownFields]:
    """Return the search with the condition on levels added, and the parts of its documents that the
    caller asked to see."""
    assert visibility.levels is not None
    filtered = dict(body)
    condition = level_condition(visibility.field, visibility.levels)
    if "retriever" in body:
        # It has one member, as `_retrievers_keep_filter` has checked. Its `filter` is like `knn`'s,
        # and applies to all within.
        [(kind, inner)] = body["retriever"].items()
        filtered["retriever"] = {kind: _filter_knn(inner, condition)}
    elif "knn" in body:
        # One vector search, or several. They run beside the query and not within it, so the
        # condition around the query doesn't cover them.
        filtered["knn"] = _each_filtered(_filter_knn, body["knn"], condition)
    # A search without any of the three matches every document.
    if "query" in body or not ("retriever" in body or "knn" in body):
        filtered["query"] = filter_query(body.get("query"), condition)
    shown = shown_fields(body.get("_source"), visibility.field)
    assert shown is not None
    if not shown.source:
        filtered["_source"] = [visibility.field]
    elif not shown.level:
        filtered["_source"] = include_field(body["_source"], visibility.field)
    return filtered, shown


def level_condition(field: str, levels: tuple[str, ...]) -> dict[str, Any]:
    """Return a query that matches documents which have one of `levels` and no other level, since a
    field may have several values. Documents without a level count as `critical`."""
    # `must_not` too, since `terms` alone matches a document with a visible and a hidden level.
    others = [level for level in SENSITIVITIES if level not in levels]
    condition: dict[str, Any] = {"must_not": [{"terms": {field: others}}]}
    if DEFAULT_LEVEL not in levels:
        condition["filter"] = [{"terms": {field: list(levels)}}]
    return {"bool": condition}


def filter_query(query: Any, condition: dict[str, Any]) -> dict[str, Any]:
    if isinstance(query, dict) and list(query) == ["hybrid"] and isinstance(query["hybrid"], dict):
        # A hybrid query must be outermost (OpenSearch, hybrid search) and can't contain another,
        # so the condition goes around each of its parts instead.
        hybrid = dict(query["hybrid"])
        if isinstance(hybrid.get("queries"), list):
            hybrid["queries"] = [_with_condition(each, condition) for each in hybrid["queries"]]
            return {"hybrid": hybrid}
    # The condition goes around the whole query, so that nothing the caller writes can undo it.
    return _with_condition({"match_all": {}} if query is None else query, condition)


def _with_condition(query: Any, condition: dict[str, Any]) -> dict[str, Any]:
    # A condition in `filter` doesn't change the scores.
    inner = _filter_vectors(query, condition)
    return {"bool": {"must": [inner], "filter": [condition]}}


def _filter_vectors(query: Any, condition: dict[str, Any], depth: int = 0) -> Any:
    """Return `query` with the condition added also inside the vector searches that select
    documents. If hidden neighbours were dropped only afterwards, too few documents would be
    left."""
    if not isinstance(query, dict) or depth > _MAX_QUERY_DEPTH:
        return query
    filtered = dict(query)
    for key in ("knn", "neural"):
        clause = query.get(key)
        # Elasticsearch has a member `field`; in OpenSearch the field's name is the only member.
        if isinstance(clause, dict) and isinstance(clause.get("field"), str):
            filtered[key] = _filter_knn(clause, condition)
        elif isinstance(clause, dict) and len(clause) == 1:
            [(field, inner)] = clause.items()
            filtered[key] = {field: _filter_opensearch_knn(inner, condition)}
    clauses = query.get("bool")
    if isinstance(clauses, dict):
        filtered["bool"] = dict(clauses)
        # Not `must_not`, where the condition would change which documents are excluded.
        for key in clauses.keys() & {"must", "should", "filter"}:
            inner = _each_filtered(_filter_vectors, clauses[key], condition, depth + 1)
            filtered["bool"][key] = inner
    return filtered


def _each_filtered(filter_one: Callable[..., Any], clauses: Any, *arguments: Any) -> Any:
    """Apply `filter_one` to a single clause, or to each clause of a list, and return the result."""
    if isinstance(clauses, list):
        return [filter_one(each, *arguments) for each in clauses]
    return filter_one(clauses, *arguments)


def _filter_knn(clause: Any, condition: dict[str, Any]) -> Any:
    """Return an Elasticsearch vector search with the condition added. Its `filter` is one query, or
    a list whose queries must all match."""
    if not isinstance(clause, dict):
        return clause
    own = clause.get("filter", [])
    return {**clause, "filter": [*(own if isinstance(own, list) else [own]), condition]}


def _filter_opensearch_knn(clause: Any, condition: dict[str, Any]) -> Any:
    """Return an OpenSearch vector search with the condition added. Its `filter` is a single
    query."""
    if not isinstance(clause, dict):
        return clause
    own = clause.get("filter")
    both = condition if own is None else {"bool": {"filter": [own, condition]}}
    return {**clause, "filter": both}


def _retrievers_keep_filter(body: dict[str, Any]) -> bool:
    """Return whether the filter of the outermost retriever of a search applies to every retriever
    within it."""
    if "retriever" in body and ("query" in body or "knn" in body):
        return False
    pending = [body["retriever"]] if "retriever" in body else []
    while pending:
        node = pending.pop()
        if not isinstance(node, dict) or len(node) != 1:
            return False
        [(kind, inner)] = node.items()
        # A kind that a later version adds may ignore the outer filter.
        if kind not in _RETRIEVERS or not isinstance(inner, dict):
            return False
        if "retriever" in inner:
            pending.append(inner["retriever"])
        retrievers = inner.get("retrievers", [])
        if not isinstance(retrievers, list):
            return False
        for each in retrievers:
            # `linear` wraps each retriever together with its weight.
            wrapped = isinstance(each, dict) and "retriever" in each
            pending.append(each["retriever"] if wrapped else each)
    return True
