"""Decide on up to a hundred retrievals in one call, each with an event of its own."""

import asyncio
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.decisions.record import decide_and_record
from control_api.requests.base import RequestModel
from control_api.requests.retrieval import AskedRetrieval
from control_api.responses.evaluations import Batch, Evaluated
from policies import batch
from policies.batch import MOST_ITEMS, Semantics
from policies.retrieval import Retrieval


def _without_query(schema: dict[str, Any]) -> None:
    for name in AskedRetrieval.in_query:
        del schema["properties"][name]


class Item(AskedRetrieval):
    """One retrieval of a batch."""

    model_config = ConfigDict(json_schema_extra=_without_query)
    in_query: ClassVar[frozenset[str]] = frozenset()


class AskedBatch(RequestModel):
    """Retrievals to decide on in order, and when to stop."""

    unique: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {
        "items": [AskedRetrieval.example],
        "semantics": "all",
    }

    items: list[Item] = Field(min_length=1, max_length=MOST_ITEMS)
    semantics: Semantics = "all"

    @classmethod
    def read(cls, values: dict[str, Any]) -> batch.BatchRequest:
        return batch.parse_batch(values)


async def evaluate_batch(
    service: AppContext, caller: Caller, asked: Annotated[batch.BatchRequest, AskedBatch]
) -> Batch:
    """Decide on several retrievals; each that is decided has its own audit event."""
    if asked.stop_on is None:
        # All documents first. Then no item waits before it claims its session, so the claims come
        # in the batch's order, although the items run side by side: their records share a commit.
        await caller.tenant.need_for(*asked.retrievals)
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


async def _evaluate(service: AppContext, caller: Caller, retrieval: Retrieval) -> Evaluated:
    decision, _, event_id = await decide_and_record(service, caller, retrieval)
    return Evaluated(decision.decision, decision.policy_name, decision.reason, event_id)
