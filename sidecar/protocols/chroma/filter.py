"""Filters Chroma's records by their own level: a condition in the query withholds what may not be
seen, and every record of the response is checked against it.

A response holds ids, documents, metadata and so on as parallel arrays (one set per query), so a
record is removed from all of them at once. Metadata are flat: a dot in the field's name is part of
the key. Pure.
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
from sidecar.protocols.shared.document_levels import DocumentLevels
from sidecar.protocols.shared.json_responses import expect_list, response_object, to_json

_PARALLEL = ("ids", "documents", "metadatas", "distances", "uris", "embeddings")
_KNOWN = frozenset((*_PARALLEL, "include"))
_METADATA = "metadatas"


def plan_query(
    _chroma: object, request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """For `/query`, whose arrays hold one inner array per query."""
    return _plan(request, visibility, nested=True)


def plan_get(
    _chroma: object, request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """For `/get`."""
    return _plan(request, visibility, nested=False)


def _plan(request: RoutedRequest, visibility: Visibility, *, nested: bool) -> ForwardPlan:
    if visibility.levels is None:
        return FORWARD_UNCHANGED
    levels = DocumentLevels((visibility.field,), visibility.levels)
    body = dict(request.body)
    if levels.filterable:
        condition = {visibility.field: {"$in": list(visibility.levels)}}
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
    """The records of a response that may be seen. `added` says that the agent did not ask for the
    metadata. Raises `UpstreamFailed` for a response that can't be checked."""
    found = response_object(response)
    unknown = found.keys() - _KNOWN
    if unknown:
        raise UpstreamFailed(
            f"the data source's response has the unknown member `{min(unknown)[:64]}`"
        )
    arrays = {
        name: expect_list(found[name], name) for name in _PARALLEL if found.get(name) is not None
    }
    withheld = 0
    if nested:
        count = len(arrays.get("ids", ()))
        if any(len(each) != count for each in arrays.values()):
            raise UpstreamFailed("the data source's arrays are not parallel")
        for at in range(count):
            rows = {name: expect_list(each[at], name) for name, each in arrays.items() if each[at]}
            withheld += _withhold(rows, levels)
    else:
        withheld = _withhold(arrays, levels)
    if added:
        found[_METADATA] = None
        if isinstance(found.get("include"), list):
            found["include"] = [each for each in found["include"] if each != _METADATA]
    elif not withheld:
        return ForwardedPart(response.body)
    return ForwardedPart(to_json(found), withheld)


def _withhold(rows: dict[str, list[Any]], levels: DocumentLevels) -> int:
    """Remove from every array the records that may not be seen. Returns how many there are."""
    if not rows.get("ids"):
        if any(rows.values()):
            raise UpstreamFailed("the data source's arrays are not parallel")
        return 0
    count = len(rows["ids"])
    if _METADATA not in rows or any(len(each) != count for each in rows.values()):
        raise UpstreamFailed("the data source's arrays are not parallel")
    shown = [at for at, metadata in enumerate(rows[_METADATA]) if levels.may_see(metadata)]
    if len(shown) < count:
        for each in rows.values():
            each[:] = [each[at] for at in shown]
    return count - len(shown)
