"""Chroma's records with a level of their own: the condition that leaves out what may not be seen,
and the proof that an answer keeps to it. Ids, documents, metadata and the rest are parallel arrays,
of each query's by itself: what goes of one goes of all.

Metadata are flat, so the field's name is a key as it stands, dots and all. Pure.
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
    SourceRef,
    Visibility,
)
from sidecar.protocols.shared.document_levels import (
    DocumentLevels,
    expect_list,
    expect_object,
    to_json,
)

_PARALLEL = ("ids", "documents", "metadatas", "distances", "uris", "embeddings")
_KNOWN = frozenset((*_PARALLEL, "include"))
_MARK = "metadatas"


def of_query(
    _chroma: object, asked: RoutedRequest, _places: tuple[SourceRef, ...], sight: Visibility
) -> ForwardPlan:
    """Of `/query`, whose arrays hold one array for each query."""
    return _prepared(asked, sight, nested=True)


def of_get(
    _chroma: object, asked: RoutedRequest, _places: tuple[SourceRef, ...], sight: Visibility
) -> ForwardPlan:
    """Of `/get`."""
    return _prepared(asked, sight, nested=False)


def _prepared(asked: RoutedRequest, sight: Visibility, *, nested: bool) -> ForwardPlan:
    if sight.levels is None:
        return FORWARD_UNCHANGED
    marks = DocumentLevels((sight.field,), sight.levels)
    body = dict(asked.body)
    if marks.filterable:
        condition = {sight.field: {"$in": list(sight.levels)}}
        own = body.get("where")
        body["where"] = {"$and": [own, condition]} if own else condition
    include = body.get("include")
    # Without the mark nothing could be proven. It is taken out again.
    added = isinstance(include, list) and _MARK not in include
    if added:
        body["include"] = [*body["include"], _MARK]
    return ForwardPlan(orjson.dumps(body), partial(_sieved, marks, nested=nested, added=added))


def _sieved(
    marks: DocumentLevels, answer: FetchedResponse, *, nested: bool, added: bool
) -> ForwardedPart:
    try:
        found = expect_object(orjson.loads(answer.body), "answer")
    except orjson.JSONDecodeError as error:
        raise UpstreamFailed("the data source's answer is not JSON") from error
    if not found.keys() <= _KNOWN:
        raise UpstreamFailed("the data source's answer holds what is not known here")
    held = {
        name: expect_list(found[name], name) for name in _PARALLEL if found.get(name) is not None
    }
    withheld = 0
    if nested:
        count = len(held.get("ids", ()))
        if any(len(each) != count for each in held.values()):
            raise UpstreamFailed("the data source's arrays are not parallel")
        for at in range(count):
            rows = {name: expect_list(each[at], name) for name, each in held.items() if each[at]}
            withheld += _cut(rows, marks)
    else:
        withheld = _cut(held, marks)
    if added:
        found[_MARK] = None
        if isinstance(found.get("include"), list):
            found["include"] = [each for each in found["include"] if each != _MARK]
    elif not withheld:
        return ForwardedPart(answer.body)
    return ForwardedPart(to_json(found), withheld)


def _cut(rows: dict[str, list[Any]], marks: DocumentLevels) -> int:
    """Takes out of each array what may not be seen; how many records that are."""
    if not rows.get("ids"):
        if any(rows.values()):
            raise UpstreamFailed("the data source's arrays are not parallel")
        return 0
    count = len(rows["ids"])
    if _MARK not in rows or any(len(each) != count for each in rows.values()):
        raise UpstreamFailed("the data source's arrays are not parallel")
    shown = [at for at, metadata in enumerate(rows[_MARK]) if marks.may_see(metadata)]
    if len(shown) < count:
        for each in rows.values():
            each[:] = [each[at] for at in shown]
    return count - len(shown)
