"""Removes the documents from a response whose level the agent may not see. This checks that the
response keeps to the condition that `query_filter.py` added.

A document with no level, several or an unknown one counts as `critical`. A response that isn't
understood, or whose counts include withheld documents, is not passed on.
"""

from typing import Any

from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import UpstreamFailed
from sidecar.protocols.opensearch.query_filter import ShownFields
from sidecar.protocols.protocol import Visibility
from sidecar.protocols.shared.responses import DEFAULT_LEVEL

_MAX_LIST_DEPTH = 32

_UNREADABLE = "the data source's answer has an unknown form, so its documents can't be filtered"


class ResultFilter:
    def __init__(self, visibility: Visibility) -> None:
        assert visibility.levels is not None
        self._levels = frozenset(visibility.levels)
        self._field = visibility.field
        self.withheld = 0
        """The number of documents withheld so far."""

    def filter_search(self, response: Any, shown: ShownFields) -> None:
        """Remove everything that the agent may not see from the response to a search, in place."""
        if not isinstance(response, dict):
            raise UpstreamFailed(_UNREADABLE)
        # Suggestions reveal terms of documents that the query doesn't match.
        if "suggest" in response:
            raise UpstreamFailed("the data source returned suggestions that were not requested")
        # The searches of one body share this object, so remember what the others withheld.
        before = self.withheld
        if "hits" in response:
            self._filter_hits(response["hits"], shown)
        aggregations = response.get("aggregations")
        if aggregations is not None:
            self._filter_aggregations(aggregations)
            # The aggregations counted the withheld documents too, and can't be corrected.
            if self.withheld > before:
                raise UpstreamFailed("the data source's aggregations count withheld documents")

    def filter_document(self, response: Any) -> Any:
        """Return the response to a request for a document by id. A hidden document looks like one
        that doesn't exist."""
        if not isinstance(response, dict):
            raise UpstreamFailed(_UNREADABLE)
        # A missing document has no level, and passes as it is.
        if response.get("found") is not True or self._may_see(response.get("_source")):
            return response
        self.withheld += 1
        return {"_index": response.get("_index"), "_id": response.get("_id"), "found": False}

    def _filter_hits(self, hits: Any, shown: ShownFields) -> None:
        found = _hit_list(hits)
        hits["hits"] = [hit for hit in found if self._filter_hit(hit, shown)]
        withheld = len(found) - len(hits["hits"])
        if withheld:
            self.withheld += withheld
            _lower_total(hits, withheld)

    def _filter_hit(self, hit: Any, shown: ShownFields) -> bool:
        # Only `_source` counts: a script or a runtime field can return anything.
        if not isinstance(hit, dict) or not self._may_see(hit.get("_source")):
            return False
        inner = hit.get("inner_hits", {})
        if not isinstance(inner, dict):
            raise UpstreamFailed(_UNREADABLE)
        for each in inner.values():
            self._filter_inner_hits(each)
        # Remove only after the check, which reads the level from here.
        if not shown.source:
            del hit["_source"]
        elif not shown.level:
            _remove_field(hit["_source"], self._field)
        return True

    def _filter_inner_hits(self, inner: Any) -> None:
        """Filter the inner hits of a hit. They are either parts of the same document (with
        `_nested`), which pass, or other documents, which are filtered like any hits."""
        hits = inner.get("hits") if isinstance(inner, dict) else None
        if any(not isinstance(each, dict) or "_nested" not in each for each in _hit_list(hits)):
            # `query_filter.py` added no fields to inner hits, so there is none to remove.
            self._filter_hits(hits, ShownFields())

    def _filter_aggregations(self, aggregations: Any) -> None:
        """Filter the hits that aggregations may contain (`top_hits`), at any depth."""
        # Search at any depth: one aggregation may be within another.
        pending = [aggregations]
        while pending:
            node = pending.pop()
            if isinstance(node, dict):
                hits = node.get("hits")
                if isinstance(hits, dict) and isinstance(hits.get("hits"), list):
                    self._filter_hits(hits, ShownFields())
                else:
                    pending += node.values()
            elif isinstance(node, list):
                pending += node

    def _may_see(self, source: Any) -> bool:
        values = _values(source, self._field.split("."))
        # With several levels, it isn't clear which one applies.
        level = values[0] if len(values) == 1 else None
        known = isinstance(level, str) and level in SENSITIVITIES
        return (level if known else DEFAULT_LEVEL) in self._levels


def _hit_list(hits: Any) -> list[Any]:
    found = hits.get("hits") if isinstance(hits, dict) else None
    if not isinstance(found, list):
        raise UpstreamFailed(_UNREADABLE)
    return found


def _values(node: Any, parts: list[str], depth: int = 0) -> list[Any]:
    """Return all values that a document has at the path `parts`. A name may contain dots, since the
    server indexes `{"a.b": 1}` like `{"a": {"b": 1}}`. A list that is nested too deeply yields
    None, which counts as an unknown level."""
    if isinstance(node, list):
        if depth > _MAX_LIST_DEPTH:
            return [None]
        return [value for each in node for value in _values(each, parts, depth + 1)]
    if not parts:
        return [node]
    if not isinstance(node, dict):
        return []
    return [
        value
        for count in range(1, len(parts) + 1)
        if (name := ".".join(parts[:count])) in node
        for value in _values(node[name], parts[count:], depth)
    ]


def _remove_field(source: dict[str, Any], field: str) -> None:
    """Remove the level from a document, in each of the forms that `_values` reads, and the objects
    that are empty without it."""
    parts = field.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if name not in source:
            continue
        if count == len(parts):
            del source[name]
        elif isinstance(source[name], dict):
            _remove_field(source[name], ".".join(parts[count:]))
            if not source[name]:
                del source[name]


def _lower_total(hits: dict[str, Any], withheld: int) -> None:
    # Otherwise the total would show how many documents of this page were withheld.
    total = hits.get("total")
    # The total is a plain number with `rest_total_hits_as_int`, else an object.
    if isinstance(total, int):
        hits["total"] = max(total - withheld, 0)
    elif isinstance(total, dict) and isinstance(total.get("value"), int):
        total["value"] = max(total["value"] - withheld, 0)
