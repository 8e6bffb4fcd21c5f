"""Decides on up to a hundred retrievals in one call, each with its own audit event."""

import asyncio
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ClientLeft, client_left
from control_api.domain.decisions import decide_and_record, masked
from control_api.requests.base import RequestModel
from control_api.requests.retrieval import AskedRetrieval
from control_api.responses.evaluations import Batch, Evaluated
from policies import batch
from policies.batch import MAX_ITEMS, Semantics
from policies.retrieval import Retrieval


def _without_query(schema: dict[str, Any]) -> None:
    """Removes the fields that a single evaluation takes from the query: an item has none."""
    for name in AskedRetrieval.in_query:
        del schema["properties"][name]


class Item(AskedRetrieval):
    """One retrieval of a batch."""

    model_config = ConfigDict(json_schema_extra=_without_query)
    in_query: ClassVar[frozenset[str]] = frozenset()


class AskedBatch(RequestModel):
    """Retrievals to decide on in order, and when to stop.

    These fields only describe the body; `parse_batch` reads it, because this path must be fast.
    """

    unique_keys: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {
        "items": [AskedRetrieval.example],
        "semantics": "all",
    }

    items: list[Item] = Field(min_length=1, max_length=MAX_ITEMS)
    semantics: Semantics = "all"

    @classmethod
    def read(cls, values: dict[str, Any]) -> batch.BatchRequest:
        return batch.parse_batch(values)


async def evaluate_batch(
    app: AppContext, caller: Caller, request: Annotated[batch.BatchRequest, AskedBatch]
) -> Batch:
    """Decide on several retrievals; each decision has its own audit event."""
    if request.stop_on is None:
        # The items run concurrently, to share one commit. Load all documents and mask all texts
        # first: then no item waits before it claims its session, so claims are made in the batch's
        # order.
        await caller.tenant.need_for(*request.retrievals)
        retrievals = await masked(app, caller, request.retrievals)
        answers = await asyncio.gather(*(_evaluate(app, caller, each) for each in retrievals))
        return Batch(list(answers))
    # One after the other, since each decision may be the one to stop at.
    results: list[Evaluated] = []
    for retrieval in request.retrievals:
        # What was decided for a client that has left is recorded, and nothing more is decided.
        if client_left():
            raise ClientLeft
        results.append(await _evaluate(app, caller, retrieval))
        if results[-1].decision == request.stop_on:
            break
    return Batch(results)


async def _evaluate(app: AppContext, caller: Caller, retrieval: Retrieval) -> Evaluated:
    decision, _, event_id = await decide_and_record(app, caller, retrieval)
    return Evaluated(decision.decision, decision.policy_name, decision.reason, event_id)
