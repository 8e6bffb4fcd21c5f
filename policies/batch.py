"""Several retrievals in one call: how they are read, and when the rest is not decided any more
(contract, section 3). Knows nothing of how one is judged."""

from typing import Any, Literal, NamedTuple

from policies.ground.errors import Invalid, invalid
from policies.retrieval import Retrieval, parse_retrieval

MOST_ITEMS = 100
Semantics = Literal["all", "stop_on_deny", "stop_on_allow"]
_STOP: dict[str, str | None] = {"all": None, "stop_on_deny": "DENY", "stop_on_allow": "ALLOW"}


class BatchRequest(NamedTuple):
    """The retrievals in order. `stop_on` is the decision after which no more are decided, None
    where all are."""

    retrievals: list[Retrieval]
    stop_on: str | None


def parse_batch(body: dict[str, Any]) -> BatchRequest:
    """Each item as a single evaluation is read; `Invalid` with every complaint of every item."""
    items, semantics = body.get("items"), body.get("semantics", "all")
    complaints = []
    if not isinstance(items, list) or not 1 <= len(items) <= MOST_ITEMS:
        fault = "is required: " if items is None else "must be "
        complaints.append(f"items: {fault}a list of 1 to {MOST_ITEMS} retrievals")
    if not isinstance(semantics, str) or semantics not in _STOP:
        complaints.append(f"semantics: must be one of {', '.join(_STOP)}")
    retrievals = []
    for at, item in enumerate(items[:MOST_ITEMS] if isinstance(items, list) else ()):
        try:
            retrievals.append(_read(item))
        except Invalid as error:
            lines = (error.details or error.message).splitlines()
            complaints += [f"items.{at}.{line}" for line in lines]
    if complaints:
        raise invalid(complaints)
    return BatchRequest(retrievals, _STOP[semantics])


def _read(item: object) -> Retrieval:
    if not isinstance(item, dict):
        raise invalid(["retrieval: must be an object"])
    return parse_retrieval(item)
