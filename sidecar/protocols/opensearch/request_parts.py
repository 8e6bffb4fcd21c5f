"""Reads the query string and the body of a request as OpenSearch and Elasticsearch read them, and
finds the indices that a body names at any depth (`protocols/RULES.md`, OpenSearch).

A parameter that is not listed here is refused: it may replace a part of the path
(`/_search?index=secret`) or the body. A body that becomes a query only on the server, such as a
template, is `Unresolved`.
"""

import re
from collections.abc import Iterator
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.opensearch.indices import parse_name, parse_names
from sidecar.protocols.protocol import Unresolved
from sidecar.protocols.shared.strict_queries import decode_escapes
from sidecar.protocols.strict_body import Budget, json_lines, optional_json_object

# The servers (RestUtils) also end a parameter at `;`, and skip a `=` before its name. Neither is
# accepted here, nor is an escape in a name, which could hide a refused one.
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)(?:=([^;]*))?").fullmatch


def parse_query(query: str | None) -> dict[str, str]:
    """Return the query parameters: their names and decoded values. Raises `Malformed` if two
    parsers could read the query differently."""
    found: dict[str, str] = {}
    for part in (query or "").split("&"):
        if not part:
            continue
        pair = _PAIR(part)
        if pair is None:
            raise Malformed(f"the query has an invalid parameter: `{part[:64]}`")
        name, value = pair[1], pair[2] or ""
        if name in found:
            raise Malformed(f"the query has `{name[:64]}` twice")
        # The servers read `+` as a space.
        found[name] = decode_escapes(value.replace("+", " "))
    return found


def parse_known(query: str | None, names: frozenset[str]) -> dict[str, str]:
    """Return the query parameters as `parse_query` does. Raises `Malformed` also for a parameter
    that is not one of `names`."""
    found = parse_query(query)
    for name in found:
        if name not in names:
            raise Malformed(f"the query parameter `{name[:64]}` is not supported for this request")
    return found


_COMMON = frozenset(("error_trace", "filter_path", "human", "pretty"))

_PATTERNS = frozenset(
    ("allow_no_indices", "expand_wildcards", "ignore_throttled", "ignore_unavailable")
)

_QUERY = frozenset(
    ("analyze_wildcard", "analyzer", "default_operator", "df", "lenient", "min_score", "q")
)

_DOCUMENT = frozenset((
    "_source", "_source_exclude_vectors", "_source_excludes", "_source_includes", "docvalue_fields",
    "fields", "force_synthetic_source", "preference", "realtime", "refresh", "routing",
    "stored_fields", "version", "version_type",
))  # fmt: skip

READ_PARAMETERS = _COMMON | _PATTERNS | _QUERY | _DOCUMENT | frozenset((
    "all_shards", "allow_partial_pit_creation", "allow_partial_results",
    "allow_partial_search_results", "batched_reduce_size", "cancel_after_time_interval",
    "ccs_minimize_roundtrips", "columnar", "delimiter", "drop_null_columns", "explain",
    "field_statistics", "filters", "format", "from", "ids", "include_empty_fields",
    "include_named_queries_score", "include_unmapped", "keep_alive", "keep_on_completion", "local",
    "master_timeout", "max_concurrent_searches", "max_concurrent_shard_requests", "offsets",
    "payloads", "phase_took", "positions", "pre_filter_shard_size", "request_cache",
    "rest_total_hits_as_int", "return_intermediate_results", "rewrite", "sanitize", "scroll",
    "search_pipeline", "search_type", "seq_no_primary_term", "size", "sort", "stats",
    "suggest_field", "suggest_mode", "suggest_size", "suggest_text", "term_statistics",
    "terminate_after", "timeout", "track_scores", "track_total_hits", "typed_keys", "types",
    "verbose_pipeline", "wait_for_completion_timeout",
))  # fmt: skip
"""The parameters that a request that reads may have. `q` is a query in Lucene's syntax, which names
fields but no index."""

METADATA_PARAMETERS = _COMMON | _PATTERNS | frozenset((
    "cluster_manager_timeout", "features", "flat_settings", "include_defaults", "local",
    "master_timeout", "mode", "wait_for_active_shards", "timeout",
))  # fmt: skip
"""The parameters that a request about indices may have."""

CAT_PARAMETERS = METADATA_PARAMETERS - {"filter_path"} | frozenset(
    ("bytes", "format", "h", "health", "pri", "s", "time", "v")
)
"""The parameters that a `_cat` request may have. `help` is left out: the response would list
columns instead of indices."""

WRITE_PARAMETERS = _COMMON | _PATTERNS | _QUERY | _DOCUMENT | frozenset((
    "_slice", "cluster_manager_timeout", "conflicts", "force", "from", "if_primary_term",
    "if_seq_no", "include_source_on_error", "lang", "list_executed_pipelines", "master_timeout",
    "max_docs", "op_type", "request_cache", "requests_per_second", "require_alias",
    "require_data_stream", "retry_on_conflict", "scroll", "scroll_size", "search_timeout",
    "search_type", "size", "slices", "sort", "stats", "terminate_after", "timeout",
    "wait_for_active_shards", "wait_for_completion", "wait_if_ongoing", "write_index_only",
))  # fmt: skip
"""The parameters that a write may have. `pipeline` is left out: it may send a document to another
index."""

PREVENTS_FILTERING = frozenset((
    "_source", "_source_exclude_vectors", "_source_excludes", "_source_includes", "explain",
    "filter_path", "q", "stored_fields", "suggest_field", "suggest_mode", "suggest_size",
    "suggest_text", "verbose_pipeline", "force_synthetic_source",
))  # fmt: skip
"""The parameters that make filtering by level impossible. With one of them, a response may lack the
documents' levels, or contain what the filter doesn't reach: `q` replaces the body's query, and
`explain` counts documents that were withheld."""


# `application/vnd.elasticsearch+json; compatible-with=9`, which clients send since 8.0. CBOR and
# SMILE, which the servers read too, are not matched, so they are refused like any other type.
_VENDOR = re.compile(
    r"application/vnd\.(?:elasticsearch|opensearch)\+(json|x-ndjson)"
    r"(?:\s*;\s*(?:compatible-with=[0-9]{1,2}|charset=\"?utf-8\"?))*",
    re.IGNORECASE,
).fullmatch


def optional_json(raw: bytes, media_type: str | None, budget: Budget) -> dict[str, Any] | None:
    """Return the JSON object in a body, or None if the body is empty."""
    return optional_json_object(raw, _standard(media_type), budget)


def ndjson(raw: bytes, media_type: str | None, budget: Budget) -> list[dict[str, Any]]:
    return json_lines(raw, _standard(media_type), budget)


def _standard(media_type: str | None) -> str | None:
    vendor = None if media_type is None else _VENDOR(media_type.strip())
    return media_type if vendor is None else f"application/{vendor[1].lower()}"


_SEARCH_MEMBERS = frozenset((
    "_source", "aggregations", "aggs", "collapse", "derived", "docvalue_fields", "explain",
    "fields", "from", "highlight", "include_named_queries_score", "index_filter", "indices_boost",
    "knn", "max_docs", "conflicts", "min_score", "pit", "post_filter", "profile", "query", "rank",
    "rescore", "retriever", "runtime_mappings", "script", "script_fields", "search_after",
    "search_pipeline", "seq_no_primary_term", "size", "slice", "sort", "stats", "stored_fields",
    "suggest", "terminate_after", "timeout", "track_scores", "track_total_hits", "verbose_pipeline",
    "version",
))  # fmt: skip
"""The members that a search may have. `ext` is left out: each plugin gives it a meaning of its
own."""

_INDEX_KEYS = frozenset(("index", "_index"))

# The index of a shape look-up that names none (AbstractGeometryQueryBuilder).
_DEFAULT_SHAPE_INDEX = "shapes"

# Queries that become another query on the server if they have this member; None means always.
_RENDERED_ON_SERVER = {
    "wrapper": "query", "agentic": "query_text", "phrase": "collate", "template": None,
}  # fmt: skip


def names_in_search(body: dict[str, Any] | None, budget: Budget) -> set[str]:
    """Return the index names in the body of a search. Raises `Unresolved` and `Malformed`;
    `OverBudget`, a kind of `Malformed`, as soon as the request of this budget has ended."""
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
    """Return the index names in a query, or in anything that contains queries, at any depth."""
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
        elif key == "indexed_shape" and isinstance(value, dict):
            yield from _names_in_value(value.get("index", _DEFAULT_SHAPE_INDEX), budget)
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
    """Yield the index names in `indices_boost`, which is a list of objects with one member each, or
    a single object."""
    for entry in value if isinstance(value, list) else [value]:
        budget.check()
        if isinstance(entry, dict):
            for name in entry:
                yield parse_name(name)
        elif entry is not None:
            raise Malformed("`indices_boost` must be an object or a list of objects")
