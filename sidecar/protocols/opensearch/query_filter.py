"""How a search leaves out the documents that may not be seen: whether it can, and the condition
that does it.

The condition stands around the whole query, so that nothing the caller states can undo it, and
inside each search by vector, so that it does not end with fewer neighbours than there are. A search
that may tell of documents that its query does not match is not sieved: it is judged as if it
returned the worst. Pure. What comes back is checked in `proof.py`.
"""

from collections.abc import Iterator
from typing import Any

from policies.definitions.model import SENSITIVITIES
from sidecar.protocols.messages import Visibility
from sidecar.protocols.opensearch.parameters import UNTOLD
from sidecar.protocols.opensearch.source_filtering import ShownFields, also, shown_of
from sidecar.protocols.shared.document_levels import UNMARKED

# Members of a search that say nothing of documents that the query does not match.
_KEPT = frozenset(
    (
        "_source",
        "aggregations",
        "aggs",
        "collapse",
        "docvalue_fields",
        "fields",
        "from",
        "highlight",
        "include_named_queries_score",
        "knn",
        "min_score",
        "pit",
        "post_filter",
        "query",
        "rescore",
        "retriever",
        "script_fields",
        "search_after",
        "search_pipeline",
        "seq_no_primary_term",
        "size",
        "slice",
        "sort",
        "stats",
        "terminate_after",
        "timeout",
        "track_scores",
        "track_total_hits",
        "version",
    )
)

# At any depth: queries that match by what other documents hold, and aggregations that count beyond
# the query.
_BEYOND = frozenset(
    (
        "agentic",
        "background_filter",
        "children",
        "global",
        "has_child",
        "has_parent",
        "more_like_this",
        "parent",
        "parent_id",
        "percolate",
        "pinned",
        "rule",
        "rule_query",
        "significant_terms",
        "significant_text",
        "template",
        "wrapper",
    )
)

# The condition stands around the whole anyway.
_DEEPEST = 16
_DEEPEST_WRITTEN = 200

_RETRIEVERS = frozenset(("knn", "linear", "rrf", "standard", "text_similarity_reranker"))


def fits(body: dict[str, Any] | None, query: dict[str, str], field: str) -> bool:
    """Whether a search can be sieved by documents' marks in `field`. It names no further index."""
    if body is None or not UNTOLD.isdisjoint(query):
        return False
    if not body.keys() <= _KEPT or not isinstance(body.get("search_pipeline", ""), str):
        return False
    if shown_of(body.get("_source"), field) is None:
        return False
    return all(map(_is_within, _nodes(body))) and _plain_retriever(body)


def _nodes(body: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object in a search, with how deep it stands."""
    pending: list[tuple[int, Any]] = [(1, body[key]) for key in body if key != "_source"]
    while pending:
        depth, node = pending.pop()
        if type(node) is dict:
            yield depth, node
        inner = node.values() if type(node) is dict else node if type(node) is list else ()
        pending += [(depth + 1, each) for each in inner if type(each) in (dict, list)]


def _is_within(at: tuple[int, dict[str, Any]]) -> bool:
    """Whether an object is none that reaches beyond the query, and can be written again."""
    depth, node = at
    if depth > _DEEPEST_WRITTEN or not _BEYOND.isdisjoint(node):
        return False
    # Terms that no document has any more stand in the answer with a count of 0: it would tell of
    # those whose documents are left out.
    least = node.get("min_doc_count", 1)
    if type(least) is not int or least < 1:
        return False
    # A document within the answer shows its level only if nobody says what is to be shown of it.
    for key in ("inner_hits", "top_hits"):
        for inner in _objects(node.get(key)):
            if not {"_source", "stored_fields"}.isdisjoint(inner):
                return False
    return True


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield each


def narrowed(body: dict[str, Any], sight: Visibility) -> tuple[dict[str, Any], ShownFields]:
    """The search that returns what may be seen, and what is to be taken out of its answer again."""
    assert sight.levels is not None
    made = dict(body)
    only = condition(sight.field, sight.levels)
    if "retriever" in made:
        made["retriever"] = _retriever(made["retriever"], only)
    elif "knn" in made:
        knn = made["knn"]
        several = isinstance(knn, list)
        found = [_near(each, only) for each in (knn if several else [knn])]
        made["knn"] = found if several else found[0]
    if "query" in made or not ("retriever" in made or "knn" in made):
        made["query"] = within(made.get("query"), only)
    shown = shown_of(made.get("_source"), sight.field)
    assert shown is not None
    if not shown.source:
        made["_source"] = [sight.field]
    elif not shown.mark:
        made["_source"] = also(made["_source"], sight.field)
    return made, shown


def condition(field: str, levels: tuple[str, ...]) -> dict[str, Any]:
    """Documents of one of `levels`, and of no other: a field may hold several values. Those without
    a mark count as `critical`."""
    others = [level for level in SENSITIVITIES if level not in levels]
    condition: dict[str, Any] = {"must_not": [{"terms": {field: others}}]}
    if UNMARKED not in levels:
        condition["filter"] = [{"terms": {field: list(levels)}}]
    return {"bool": condition}


def within(query: Any, only: dict[str, Any]) -> dict[str, Any]:
    """`query`, of documents that `only` matches."""
    if isinstance(query, dict) and list(query) == ["hybrid"] and isinstance(query["hybrid"], dict):
        # It has to stand outermost (OpenSearch, hybrid search), and holds no other of its kind.
        hybrid = dict(query["hybrid"])
        if isinstance(hybrid.get("queries"), list):
            queries = [_nearer(each, only) for each in hybrid["queries"]]
            hybrid["queries"] = [{"bool": {"must": [each], "filter": [only]}} for each in queries]
            return {"hybrid": hybrid}
    inner = {"match_all": {}} if query is None else _nearer(query, only)
    return {"bool": {"must": [inner], "filter": [only]}}


def _nearer(query: Any, only: dict[str, Any], depth: int = 0) -> Any:
    """`query` with the condition inside its searches by vector, as far as they stand where all that
    they find counts, and not too deep."""
    if not isinstance(query, dict) or depth > _DEEPEST:
        return query
    made = dict(query)
    for key in ("knn", "neural"):
        clause = made.get(key)
        if isinstance(clause, dict) and isinstance(clause.get("field"), str):
            made[key] = _near(clause, only)
        elif isinstance(clause, dict) and len(clause) == 1:
            [(field, inner)] = clause.items()
            made[key] = {field: _alone(inner, only)}
    clauses = made.get("bool")
    if isinstance(clauses, dict):
        made["bool"] = {
            key: _each_nearer(value, only, depth) if key in ("must", "should", "filter") else value
            for key, value in clauses.items()
        }
    return made


def _each_nearer(value: Any, only: dict[str, Any], depth: int) -> Any:
    if isinstance(value, list):
        return [_nearer(each, only, depth + 1) for each in value]
    return _nearer(value, only, depth + 1)


def _near(clause: Any, only: dict[str, Any]) -> Any:
    """Elasticsearch's `filter` is one query, or a list of which all must match."""
    if not isinstance(clause, dict):
        return clause
    own = clause.get("filter", [])
    return {**clause, "filter": [*(own if isinstance(own, list) else [own]), only]}


def _alone(clause: Any, only: dict[str, Any]) -> Any:
    """OpenSearch's `filter` is one query."""
    if not isinstance(clause, dict):
        return clause
    own = clause.get("filter")
    return {**clause, "filter": only if own is None else {"bool": {"filter": [own, only]}}}


def _retriever(retriever: dict[str, Any], only: dict[str, Any]) -> dict[str, Any]:
    """The outermost one's `filter` holds for all within it."""
    [(kind, inner)] = retriever.items()
    return {kind: _near(inner, only)}


def _plain_retriever(body: dict[str, Any]) -> bool:
    """Whether every retriever of a search keeps to the outermost one's filter."""
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
            # `linear` wraps each with its weight.
            named = isinstance(each, dict) and "retriever" in each
            pending.append(each["retriever"] if named else each)
    return True
