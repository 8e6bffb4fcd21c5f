"""Leaves out of Qdrant's answers the points that may not be seen by their own mark: the condition
in the query, the mark in the answer, and the check of every point. Pure; knows no route.

The condition alone would not do: to Qdrant a payload `["low", "critical"]` matches `low`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, ForwardedPart
from sidecar.protocols.qdrant.references import Request, prefetches
from sidecar.protocols.shared.document_levels import (
    DocumentLevels,
    expect_list,
    expect_object,
    to_json,
)


class Payload(NamedTuple):
    """What is asked for as `with_payload` so that the mark is there, and what has to be taken out
    of each point again: `paths`, or the whole payload where `none` was wanted. `prune` where an
    object that is empty then was not wanted either."""

    asked: Any
    paths: tuple[tuple[str, ...], ...] = ()
    none: bool = False
    prune: bool = False


class FilteredRequest(NamedTuple):
    """One request as it is forwarded, and what is taken out of its answer."""

    body: Request
    payload: Payload
    lookup: Payload


class PayloadFilter:
    """Goes through one answer. `changed` once it is not what came."""

    def __init__(self, marks: DocumentLevels) -> None:
        self._marks = marks
        self.withheld = 0
        self.changed = False

    def points(self, found: Any, ask: FilteredRequest) -> list[Any]:
        """A list of points or records, as far as it may be seen."""
        seen = []
        for point in expect_list(found, "list of points"):
            expect_object(point, "point")
            if self._shows(point, ask.payload):
                seen.append(point)
        return seen

    def page(self, found: Any, ask: FilteredRequest) -> dict[str, Any]:
        """`{"points": […]}`."""
        page = _only(found, "points", "next_page_offset")
        return {**page, "points": self.points(page.get("points"), ask)}

    def groups(self, found: Any, ask: FilteredRequest) -> dict[str, Any]:
        """`{"groups": [{"hits": […], "lookup": …}]}`; a group without hits is none."""
        whole = _only(found, "groups")
        kept = []
        for group in expect_list(whole.get("groups"), "list of groups"):
            _only(group, "hits", "id", "lookup")
            hits = self.points(group.get("hits"), ask)
            record = group.get("lookup")
            if not hits:
                continue
            group["hits"] = hits
            if record is not None and not self._shows(expect_object(record, "record"), ask.lookup):
                del group["lookup"]
            kept.append(group)
        return {**whole, "groups": kept}

    def _shows(self, point: dict[str, Any], payload: Payload) -> bool:
        if not self._marks.may_see(point.get("payload")):
            self.withheld += 1
            self.changed = True
            return False
        if payload.none:
            self.changed = point.pop("payload", None) is not None or self.changed
        for path in payload.paths:
            taken = _take_out(point.get("payload"), path, prune=payload.prune)
            self.changed = self.changed or taken
        return True


class RequestForm(NamedTuple):
    """What one kind of request looks like: whether it takes a `filter`, whether it returns the
    payload unasked, and how a result is read."""

    read: Callable[[PayloadFilter, Any, FilteredRequest], Any]
    payload: bool = False
    filtered: bool = True


PAGE = RequestForm(PayloadFilter.page)
GROUPS = RequestForm(PayloadFilter.groups)
LIST = RequestForm(PayloadFilter.points)
SCROLL = RequestForm(PayloadFilter.page, payload=True)
RECORDS = RequestForm(PayloadFilter.points, payload=True, filtered=False)


def narrowed(request: Request, marks: DocumentLevels, form: RequestForm) -> FilteredRequest:
    """`request`, so that it asks for what may be seen only, and for the marks that prove it."""
    payload = _payload(request.get("with_payload"), marks.path, unasked=form.payload)
    body = _filtered(request, marks) if form.filtered and marks.filterable else dict(request)
    body["with_payload"] = payload.asked
    lookup = request.get("with_lookup")
    if lookup is None:
        return FilteredRequest(body, payload, payload)
    if isinstance(lookup, str):
        lookup = {"collection": lookup}
    of_lookup = _payload(lookup.get("with_payload"), marks.path, unasked=True)
    body["with_lookup"] = {**lookup, "with_payload": of_lookup.asked}
    return FilteredRequest(body, payload, of_lookup)


def reading(
    marks: DocumentLevels, form: RequestForm, ask: FilteredRequest
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Reads the answer to one request."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        return _sifted(answer, marks, lambda sieve, result: form.read(sieve, result, ask))

    return read


def reading_each(
    marks: DocumentLevels, form: RequestForm, asks: list[FilteredRequest]
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Reads the answer to a batch: one result a request, in order."""

    def each(sieve: PayloadFilter, result: Any) -> list[Any]:
        results = expect_list(result, "result")
        if len(results) != len(asks):
            raise UpstreamFailed("the data source answers another number of requests")
        return [form.read(sieve, one, ask) for one, ask in zip(results, asks, strict=True)]

    def read(answer: FetchedResponse) -> ForwardedPart:
        return _sifted(answer, marks, each)

    return read


def _only(found: Any, *members: str) -> dict[str, Any]:
    """An object that holds nothing else: what is not known here might be points."""
    held = expect_object(found, "result")
    if held.keys() - set(members):
        raise UpstreamFailed("the data source's result is not of a form known here")
    return held


def parsed(answer: FetchedResponse) -> dict[str, Any]:
    """The answer's JSON object."""
    try:
        return expect_object(orjson.loads(answer.body), "answer")
    except orjson.JSONDecodeError as error:
        raise UpstreamFailed("the data source's answer is not JSON") from error


def _sifted(
    answer: FetchedResponse, marks: DocumentLevels, through: Callable[[PayloadFilter, Any], Any]
) -> ForwardedPart:
    whole = parsed(answer)
    sieve = PayloadFilter(marks)
    whole["result"] = through(sieve, whole.get("result"))
    body = to_json(whole) if sieve.changed else answer.body
    return ForwardedPart(body, sieve.withheld)


def _filtered(part: Request, marks: DocumentLevels) -> Request:
    """`part` with the condition beside the caller's own, here and in every `prefetch`."""
    mine = {"key": ".".join(marks.path), "match": {"any": list(marks.levels)}}
    theirs = part.get("filter") or {}
    must = theirs.get("must")
    if must is None:
        must = []
    elif not isinstance(must, list):
        must = [must]
    made = {**part, "filter": {**theirs, "must": [mine, *must]}}
    nested = [_filtered(each, marks) for each in prefetches(part)]
    if nested:
        made["prefetch"] = nested
    return made


def _payload(value: Any, path: tuple[str, ...], *, unasked: bool) -> Payload:
    if value is None:
        value = unasked
    if isinstance(value, bool):
        return Payload(True) if value else Payload([".".join(path)], none=True)
    if isinstance(value, dict) and "exclude" in value:
        over = {name for name in value["exclude"] if _covers(name, path)}
        rest = [name for name in value["exclude"] if name not in over]
        paths = tuple(tuple(name.split(".")) for name in over)
        return Payload({"exclude": rest} if rest else True, paths)
    names = value["include"] if isinstance(value, dict) else value
    if any(_covers(name, path) for name in names):
        return Payload(value)
    return Payload([*names, ".".join(path)], (path,), prune=True)


def _covers(name: str, path: tuple[str, ...]) -> bool:
    parts = tuple(name.split("."))
    return path[: len(parts)] == parts


def _take_out(payload: Any, path: tuple[str, ...], *, prune: bool) -> bool:
    """Whether it was there. A document that shows has an object at every step to its mark, unless
    documents without one show."""
    holders = []
    for name in path[:-1]:
        if not isinstance(payload, dict) or name not in payload:
            return False
        holders.append((payload, name))
        payload = payload[name]
    if not isinstance(payload, dict) or path[-1] not in payload:
        return False
    del payload[path[-1]]
    while prune and holders and not payload:
        payload, name = holders.pop()
        del payload[name]
    return True
