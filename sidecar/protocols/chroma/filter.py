"""Filters Chroma's records by their own level: adds a condition to the query that withholds what
the agent may not see, and checks every record of the response.

A response holds ids, documents, metadata and so on as parallel arrays (one set per query). Pure.
"""

from functools import partial
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.route_table import Sources
from sidecar.protocols.shared.document_levels import DocumentLevels, levels_of
from sidecar.protocols.shared.json_responses import expect_list, response_object, to_json

_PARALLEL = ("ids", "documents", "metadatas", "distances", "uris", "embeddings")
_KNOWN = frozenset((*_PARALLEL, "include"))
_METADATA = "metadatas"


def plan_query(
    _chroma: object, request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """The plan for `/query`, whose arrays hold one inner array per query."""
    return _plan(request, visibility, nested=True)


def plan_get(
    _chroma: object, request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """The plan for `/get`, whose arrays are flat."""
    return _plan(request, visibility, nested=False)


def _plan(request: RoutedRequest, visibility: Visibility, *, nested: bool) -> ForwardPlan:
    # Chroma's metadata are flat: a dot in the field's name is part of the key.
    levels = levels_of(visibility, flat=True)
    if levels is None:
        return FORWARD_UNCHANGED
    body = dict(request.body)
    # If not filterable, the agent may see records without a level, which match no condition on it.
    if levels.filterable:
        # Both conditions must hold, so nothing in the agent's own can undo this one.
        condition = {visibility.field: {"$in": list(levels.levels)}}
        own = body.get("where")
        body["where"] = {"$and": [own, condition]} if own else condition
    include = body.get("include")
    # The check needs the metadata. If the agent didn't ask for them, they are removed again.
    added = isinstance(include, list) and _METADATA not in include
    if added:
        body["include"] = [*body["include"], _METADATA]
    return ForwardPlan(
        orjson.dumps(body), partial(filter_records, levels, nested=nested, added=added)
    )


def filter_records(
    levels: DocumentLevels, response: FetchedResponse, *, nested: bool, added: bool
) -> ForwardedPart:
    """The records of a response that the agent may see. `added` says that it did not ask for the
    metadata. Raises `UpstreamFailed` for a response that can't be checked."""
    found = response_object(response)
    # An array that this module doesn't know may hold documents too.
    unknown = found.keys() - _KNOWN
    if unknown:
        raise UpstreamFailed(
            f"the data source's response has the unknown member `{min(unknown)[:64]}`"
        )
    arrays = {
        name: expect_list(found[name], name) for name in _PARALLEL if found.get(name) is not None
    }
    record_sets = [arrays]
    if nested:
        count = len(arrays.get("ids", ()))
        if any(len(each) != count for each in arrays.values()):
            raise UpstreamFailed("the data source's arrays are not parallel")
        # Leave out an inner array that is null or empty. `_withhold` refuses ids without metadata.
        record_sets = [
            {name: expect_list(each[at], name) for name, each in arrays.items() if each[at]}
            for at in range(count)
        ]
    withheld = sum(_withhold(records, levels) for records in record_sets)
    if added:
        found[_METADATA] = None
        if isinstance(found.get("include"), list):
            found["include"] = [each for each in found["include"] if each != _METADATA]
    elif not withheld:
        # Chroma's own bytes, since nothing was changed.
        return ForwardedPart(response.body)
    return ForwardedPart(to_json(found), withheld)


def _withhold(records: dict[str, list[Any]], levels: DocumentLevels) -> int:
    """Remove the records that the agent may not see from every array. Returns their number."""
    count = len(records.get("ids", ()))
    # Without metadata there is nothing to check, and in arrays of different lengths an index may
    # stand for different records.
    unchecked = count and _METADATA not in records
    if unchecked or any(len(each) != count for each in records.values()):
        raise UpstreamFailed("the data source's arrays are not parallel")
    shown = [at for at, each in enumerate(records.get(_METADATA, ())) if levels.may_see(each)]
    if len(shown) < count:
        for each in records.values():
            each[:] = [each[at] for at in shown]
    return count - len(shown)
