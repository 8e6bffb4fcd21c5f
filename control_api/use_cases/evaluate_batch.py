"""Decide on up to a hundred retrievals in one call, each with an event of its own."""

import asyncio
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field

from control_api.asked import Asked
from control_api.caller import Caller
from control_api.service import Service
from control_api.shapes import Batch, Evaluated
from control_api.use_cases.evaluate_context import AskedRetrieval, decide_and_record
from policies.ground.errors import Invalid, invalid
from policies.retrieval import Retrieval, parse_retrieval

MOST_ITEMS = 100
Semantics = Literal["all", "stop_on_deny", "stop_on_allow"]
_STOP: dict[str, str | None] = {"all": None, "stop_on_deny": "DENY", "stop_on_allow": "ALLOW"}


def _without_query(schema: dict[str, Any]) -> None:
    for name in AskedRetrieval.in_query:
        del schema["properties"][name]


class Item(AskedRetrieval):
    """One retrieval of a batch."""

    model_config = ConfigDict(json_schema_extra=_without_query)
    in_query: ClassVar[frozenset[str]] = frozenset()


class Items(NamedTuple):
    """What is asked, read."""

    retrievals: list[Retrieval]
    stop_on: str | None


class AskedBatch(Asked):
    """Retrievals to decide on in order, and when to stop."""

    unique: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {
        "items": [AskedRetrieval.example],
        "semantics": "all",
    }

    items: list[Item] = Field(min_length=1, max_length=MOST_ITEMS)
    semantics: Semantics = "all"

    @classmethod
    def read(cls, values: dict[str, Any]) -> Items:
        """As single evaluations are read, with every complaint of every item."""
        items, semantics = values.get("items"), values.get("semantics", "all")
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
        return Items(retrievals, _STOP[semantics])


def _read(item: object) -> Retrieval:
    if not isinstance(item, dict):
        raise invalid(["retrieval: must be an object"])
    return parse_retrieval(item)


async def evaluate_batch(
    service: Service, caller: Caller, asked: Annotated[Items, AskedBatch]
) -> Batch:
    """Decide on several retrievals; each that is decided has its own audit event."""
    if asked.stop_on is None:
        # Side by side: their records share a commit. They are decided in order nonetheless.
        answers = await asyncio.gather(
            *(_evaluate(service, caller, each) for each in asked.retrievals)
        )
        return Batch(list(answers))
    results: list[Evaluated] = []
    for retrieval in asked.retrievals:
        results.append(await _evaluate(service, caller, retrieval))
        if results[-1].decision == asked.stop_on:
            break
    return Batch(results)


async def _evaluate(service: Service, caller: Caller, retrieval: Retrieval) -> Evaluated:
    decision, _, event_id = await decide_and_record(service, caller, retrieval)
    return Evaluated(decision.decision, decision.policy_name, decision.reason, event_id)
