"""Parses a call that holds several retrievals, and says after which decision to stop
(`CONTRACT.md`, Evaluation). Knows nothing of how a retrieval is decided."""

from typing import Any, Literal, NamedTuple

from policies.ground.errors import Invalid, invalid
from policies.retrieval import Retrieval, parse_retrieval

MAX_ITEMS = 100
Semantics = Literal["all", "stop_on_deny", "stop_on_allow"]
_Verdict = Literal["ALLOW", "DENY"]
_STOP: dict[str, _Verdict | None] = {
    "all": None,
    "stop_on_deny": "DENY",
    "stop_on_allow": "ALLOW",
}


class BatchRequest(NamedTuple):
    """A parsed batch call: its retrievals in order, and when to stop. The first decision that
    equals `stop_on` is the last one made; if `stop_on` is None, all retrievals are decided."""

    retrievals: list[Retrieval]
    stop_on: _Verdict | None


def parse_batch(body: dict[str, Any]) -> BatchRequest:
    """Parse each item like the body of a single evaluation. Raises `Invalid` with every item's
    complaints."""
    items, semantics = body.get("items"), body.get("semantics", "all")
    complaints = []
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_ITEMS:
        fault = "is required: " if items is None else "must be "
        complaints.append(f"items: {fault}a list of 1 to {MAX_ITEMS} retrievals")
    if not isinstance(semantics, str) or semantics not in _STOP:
        complaints.append(f"semantics: must be one of {', '.join(_STOP)}")
    retrievals = []
    # A longer list is refused in any case: parsing the rest would only cost time.
    for index, item in enumerate(items[:MAX_ITEMS] if isinstance(items, list) else ()):
        try:
            retrievals.append(_parse_item(item))
        except Invalid as error:  # collected: the caller repairs all items at once
            lines = (error.details or error.message).splitlines()
            complaints += [f"items.{index}.{line}" for line in lines]
    if complaints:
        raise invalid(complaints)
    return BatchRequest(retrievals, _STOP[semantics])


def _parse_item(item: object) -> Retrieval:
    if not isinstance(item, dict):
        raise invalid(["retrieval: must be an object"])
    return parse_retrieval(item)
