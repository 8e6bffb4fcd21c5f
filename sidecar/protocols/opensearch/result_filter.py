"""What of an answer may be seen: each document shows its level, or is left out.

The search was asked with the condition already (`sieve.py`); this is the proof that the answer
keeps to it. A document without a mark, with several or with an unknown one, is as one marked
`critical`. An answer that is not understood, or whose counts stand on documents that had to be left
out, goes nowhere. Pure.
"""

from typing import Any

from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import Visibility
from sidecar.protocols.opensearch.source_filtering import ShownFields
from sidecar.protocols.shared.document_levels import UNMARKED

_DEEPEST = 32

_UNREADABLE = "the data source's answer can't be read for its documents' levels"


class ResultFilter:
    """The documents of one answer. `withheld` is how many were left out so far."""

    def __init__(self, sight: Visibility) -> None:
        assert sight.levels is not None
        self._levels = frozenset(sight.levels)
        self._field = sight.field
        self.withheld = 0

    def search(self, answer: Any, shown: ShownFields) -> None:
        """Leaves out of a search's answer, in place, what may not be seen."""
        if not isinstance(answer, dict):
            raise UpstreamFailed(_UNREADABLE)
        if "suggest" in answer:
            raise UpstreamFailed("the data source suggests what it was not asked for")
        before = self.withheld
        if "hits" in answer:
            self._hits(answer["hits"], shown)
        found = answer.get("aggregations")
        if found is not None:
            self._aggregated(found)
            if self.withheld > before:
                raise UpstreamFailed("the data source counts documents that it was not to")

    def document(self, answer: Any) -> Any:
        """A document asked for by its id; as one that there is not where it may not be seen."""
        if not isinstance(answer, dict):
            raise UpstreamFailed(_UNREADABLE)
        if answer.get("found") is not True or self._may_be_seen(answer.get("_source")):
            return answer
        self.withheld += 1
        return {
            "_index": answer.get("_index"),
            "_id": answer.get("_id"),
            "found": False,
        }

    def _hits(self, hits: Any, shown: ShownFields) -> None:
        found = hits.get("hits") if isinstance(hits, dict) else None
        if not isinstance(found, list):
            raise UpstreamFailed(_UNREADABLE)
        kept = [hit for hit in found if self._hit(hit, shown)]
        if len(kept) == len(found):
            return
        self.withheld += len(found) - len(kept)
        hits["hits"] = kept
        _lower(hits, len(found) - len(kept))

    def _hit(self, hit: Any, shown: ShownFields) -> bool:
        if not isinstance(hit, dict) or not self._may_be_seen(hit.get("_source")):
            return False
        inner = hit.get("inner_hits", {})
        if not isinstance(inner, dict):
            raise UpstreamFailed(_UNREADABLE)
        for each in inner.values():
            self._inner(each)
        if not shown.source:
            del hit["_source"]
        elif not shown.mark:
            _take_out(hit["_source"], self._field)
        return True

    def _inner(self, inner: Any) -> None:
        """Hits within a hit: parts of the document itself, or documents of their own."""
        hits = inner.get("hits") if isinstance(inner, dict) else None
        found = hits.get("hits") if isinstance(hits, dict) else None
        if not isinstance(found, list):
            raise UpstreamFailed(_UNREADABLE)
        if any(not isinstance(each, dict) or "_nested" not in each for each in found):
            self._hits(hits, ShownFields())

    def _aggregated(self, found: Any) -> None:
        """Aggregations may hold hits too (`top_hits`)."""
        pending = [found]
        while pending:
            node = pending.pop()
            if isinstance(node, dict):
                hits = node.get("hits")
                if isinstance(hits, dict) and isinstance(hits.get("hits"), list):
                    self._hits(hits, ShownFields())
                else:
                    pending += node.values()
            elif isinstance(node, list):
                pending += node

    def _may_be_seen(self, source: Any) -> bool:
        marks = _values(source, self._field.split("."))
        # Of several nobody knows which one is meant.
        mark = marks[0] if len(marks) == 1 else None
        known = isinstance(mark, str) and mark in SENSITIVITIES
        return (mark if known else UNMARKED) in self._levels


def _values(node: Any, parts: list[str], depth: int = 0) -> list[Any]:
    """All that a document holds at a path: each step an object's member, dots in names included,
    as the server indexes them. A list within lists without end is no mark."""
    if isinstance(node, list):
        if depth > _DEEPEST:
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


def _take_out(source: dict[str, Any], field: str) -> None:
    """Without what only stands there because it was asked for here."""
    parts = field.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if name not in source:
            continue
        if count == len(parts):
            del source[name]
        elif isinstance(source[name], dict):
            _take_out(source[name], ".".join(parts[count:]))
            if not source[name]:
                del source[name]


def _lower(hits: dict[str, Any], withheld: int) -> None:
    """The total without those that were left out."""
    total = hits.get("total")
    if isinstance(total, int):
        hits["total"] = max(total - withheld, 0)
    elif isinstance(total, dict) and isinstance(total.get("value"), int):
        total["value"] = max(total["value"] - withheld, 0)
