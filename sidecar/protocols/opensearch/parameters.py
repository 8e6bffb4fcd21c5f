"""The query string as OpenSearch and Elasticsearch read it, and the parameters that each kind of
request may have.

A parameter may replace a missing part of the path (`/_search?index=secret`) or the body (`source`),
so a parameter that is not listed here is refused. Pure.
"""

import re

from policies.ground.errors import Malformed
from sidecar.protocols.shared.escapes import decode_escapes

# The servers (RestUtils) also end a parameter at `;`, and skip a `=` before its name. Neither is
# accepted here, nor is an escape in a name, which could hide a refused one.
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)(?:=([^;]*))?").fullmatch


def parse_query(query: str | None) -> dict[str, str]:
    """The parameters' names and decoded values. Raises `Malformed` where two readers could
    differ."""
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
    """`parse_query`, for a query that may only have the parameters `names`."""
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

READ = _COMMON | _PATTERNS | _QUERY | _DOCUMENT | frozenset((
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
"""For requests that read. `q` is a query in Lucene's syntax, which names fields but no index."""

METADATA = _COMMON | _PATTERNS | frozenset((
    "cluster_manager_timeout", "features", "flat_settings", "include_defaults", "local",
    "master_timeout", "mode", "wait_for_active_shards", "timeout",
))  # fmt: skip
"""For requests about indices."""

CAT = METADATA - {"filter_path"} | {"bytes", "format", "h", "health", "pri", "s", "time", "v"}
"""For `_cat`. `help` is missing: the response would list columns instead of indices."""

WRITE = _COMMON | _PATTERNS | _QUERY | _DOCUMENT | frozenset((
    "_slice", "cluster_manager_timeout", "conflicts", "force", "from", "if_primary_term",
    "if_seq_no", "include_source_on_error", "lang", "list_executed_pipelines", "master_timeout",
    "max_docs", "op_type", "request_cache", "requests_per_second", "require_alias",
    "require_data_stream", "retry_on_conflict", "scroll", "scroll_size", "search_timeout",
    "search_type", "size", "slices", "sort", "stats", "terminate_after", "timeout",
    "wait_for_active_shards", "wait_for_completion", "wait_if_ongoing", "write_index_only",
))  # fmt: skip
"""For writes. `pipeline` is missing: it may send a document to another index."""

PREVENTS_FILTERING = frozenset((
    "_source", "_source_exclude_vectors", "_source_excludes", "_source_includes", "explain",
    "filter_path", "q", "stored_fields", "suggest_field", "suggest_mode", "suggest_size",
    "suggest_text", "verbose_pipeline", "force_synthetic_source",
))  # fmt: skip
"""With one of these, a response may lack the documents' levels, or contain what the filter doesn't
reach: `q` replaces the body's query, and `explain` counts documents that were withheld."""
