"""Pinecone's data plane (data-sources.md 5.5; API 2026-07 and its client 10.2).

An index is a host, so the configured alias stands for it; what a request reads is a namespace of
it, named in the path, the query or the body. The namespace without a name and `__default__` are
one.

The table at the end holds the data plane's routes, and those of an assistant. Knows Pinecone's
routes; judges nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from sidecar.http.request_target import Target
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    ForwardPlan,
    RoutedRequest,
    SourceRef,
    Unresolved,
    Visibility,
)
from sidecar.protocols.pinecone.filter import (
    BY_METADATA,
    DOCUMENTS,
    FETCH,
    FETCHED,
    QUERY,
    SEARCH,
    Body,
    QueryForm,
    reading,
    sifted,
)
from sidecar.protocols.pinecone.sources import PineconeSources
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch, RouteTable
from sidecar.protocols.shared.document_levels import expect_list, expect_object, levels_of
from sidecar.protocols.shared.strict_members import read_members, read_parameters
from sidecar.protocols.strict_body import json_object, optional_json_object
from sidecar.settings.model import Source


class Pinecone(PineconeSources, SourceProtocol):
    """One index."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._table = _PLAIN if source.sensitivity_field is None else _TABLE

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return self._table.match(method, target)

    def narrowed(
        self,
        form: QueryForm,
        asked: RoutedRequest,
        places: tuple[SourceRef, ...],
        sight: Visibility,
    ) -> ForwardPlan:
        """Records as far as they may be seen; the next page is remembered."""
        marks = levels_of(sight)
        begun = partial(self._begin, asked, places)
        if marks is None:
            return (
                ForwardPlan(filter_response=lambda answer: sifted(answer, begun))
                if form.pages
                else FORWARD_UNCHANGED
            )
        made = form.narrow(asked.body, marks)
        sift = reading(form, marks, made)
        body = None if made.body is None else orjson.dumps(made.body)
        return ForwardPlan(body, lambda answer: sifted(answer, begun, sift))

    def paged(
        self, asked: RoutedRequest, places: tuple[SourceRef, ...], _sight: Visibility
    ) -> ForwardPlan:
        """The next page is remembered."""
        return ForwardPlan(
            filter_response=lambda answer: sifted(answer, partial(self._begin, asked, places))
        )

    def listed(self, _asked: RoutedRequest, _places: object, sight: Visibility) -> ForwardPlan:
        """`{"namespaces": [{"name"}], "total_count"}`, as far as they may be seen."""

        def sift(whole: Body) -> tuple[int, bool]:
            found = expect_list(whole.get("namespaces") or [], "list")
            whole["namespaces"] = [each for each in found if self._shows(_named(each), sight)]
            # It counts the namespaces of all pages, those that may not be seen among them.
            whole.pop("total_count", None)
            return 0, True

        return ForwardPlan(filter_response=lambda answer: sifted(answer, sift))

    def counted(self, _asked: RoutedRequest, _places: object, sight: Visibility) -> ForwardPlan:
        """`{"namespaces": {name: {"vectorCount"}}, "totalVectorCount"}`, likewise."""

        def sift(whole: Body) -> tuple[int, bool]:
            found = expect_object(whole.get("namespaces") or {}, "answer")
            seen = {name: each for name, each in found.items() if self._shows(name, sight)}
            if len(seen) == len(found):
                return 0, False
            whole["namespaces"] = seen
            whole["totalVectorCount"] = sum(
                expect_object(each, "answer").get("vectorCount") or 0 for each in seen.values()
            )
            whole.pop("indexFullness", None)
            return 0, True

        return ForwardPlan(filter_response=lambda answer: sifted(answer, sift))

    def stats(self, asked: RoutedRequest) -> ProtocolRoute:
        """Counts by a filter tell what is in every namespace at once."""
        [given] = read_members(asked.body or {}, "filter")
        [stated] = read_parameters(asked.target.query, "filter")
        if given or stated:
            raise Unresolved("counts by a filter concern every namespace at once")
        return _STATS

    def _shows(self, name: str, sight: Visibility) -> bool:
        return sight.permits(self._of(name))


def _named(element: Any) -> str:
    name = expect_object(element, "list").get("name")
    return name if isinstance(name, str) else ""


_RETRIEVE, _METADATA, _WRITE, _BULK = (
    RouteClass.RETRIEVE,
    RouteClass.METADATA,
    RouteClass.WRITE,
    RouteClass.BULK,
)
_path, _body, _hint = PineconeSources.of_path, PineconeSources.of_body, PineconeSources.hint

Known = Callable[[Any, RoutedRequest], tuple[SourceRef, ...]]

_R, _D = "/records/namespaces/{namespace}", "/namespaces/{namespace}/documents"
_CHAT, _FILES = "/assistant/chat/{assistant}", "/assistant/files/{assistant}"


def _row(
    methods: str, path: str, class_: RouteClass, known: Known, hint: Any = None, **more: Any
) -> ProtocolRoute:
    """A row whose sources the request tells by itself."""

    async def places(pinecone: Any, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        return known(pinecone, asked)

    return ProtocolRoute(methods, path, class_, places, hint, find_sources_now=known, **more)


def _plain(methods: str, path: str, known: Known, *, pages: bool = False) -> ProtocolRoute:
    """A retrieval that returns whatever is there."""
    inspected = None if methods == "GET" else json_object
    prepared = Pinecone.paged if pages else None
    return _row(methods, path, _RETRIEVE, known, parse_body=inspected, plan_forward=prepared)


def _sieved(methods: str, path: str, known: Known, form: QueryForm) -> ProtocolRoute:
    """A row that leaves out what may not be seen. A request that can't be narrowed is another row:
    all of it is judged as one."""
    blunt = _plain(methods, path, known, pages=form.pages)

    def prepared(
        pinecone: Pinecone, asked: RoutedRequest, found: tuple[SourceRef, ...], sight: Visibility
    ) -> ForwardPlan:
        return pinecone.narrowed(form, asked, found, sight)

    def refined(_pinecone: Pinecone, asked: RoutedRequest) -> ProtocolRoute:
        return sharp if form.plain(asked.body) else blunt

    sharp = replace(blunt, plan_forward=prepared, filters_documents=True)
    return replace(sharp, refine=refined)


_STATS = ProtocolRoute(
    "GET POST", "/describe_index_stats", _METADATA, plan_forward=Pinecone.counted
)

_SEARCHES: tuple[tuple[str, str, Known, QueryForm], ...] = (
    ("POST", "/query", PineconeSources.of_queries, QUERY),
    ("GET", "/vectors/fetch", PineconeSources.of_query, FETCH),
    ("POST", "/vectors/fetch_by_metadata", _body, BY_METADATA),
    ("POST", f"{_R}/search", PineconeSources.of_records, SEARCH),
    ("POST", f"{_D}/search", PineconeSources.of_documents, DOCUMENTS),
    ("POST", f"{_D}/fetch", PineconeSources.of_documents, FETCHED),
)
_OTHERS = (
    # Ids without metadata: nothing in the answer could prove what they are of.
    _plain("GET", "/vectors/list", PineconeSources.of_query, pages=True),
    _plain("POST", f"{_D}/list", PineconeSources.of_documents, pages=True),
    _row("POST", _CHAT, _RETRIEVE, PineconeSources.of_assistant),
    _row("POST", f"{_CHAT}/context", _RETRIEVE, PineconeSources.of_assistant),
    _row("POST", f"{_CHAT}/chat/completions", _RETRIEVE, PineconeSources.of_assistant),
    _row("GET", _FILES, _RETRIEVE, PineconeSources.of_assistant),
    _row("GET", f"{_FILES}/{{file}}", _RETRIEVE, PineconeSources.of_assistant),
    ProtocolRoute("GET", "/namespaces", _METADATA, plan_forward=Pinecone.listed),
    _row("GET", "/namespaces/{namespace}", _METADATA, _path),
    replace(_STATS, parse_body=optional_json_object, refine=Pinecone.stats),
    _row("POST", "/vectors/upsert", _WRITE, _body, parse_body=json_object),
    _row("POST", "/vectors/update", _WRITE, _body, parse_body=json_object),
    _row("POST", "/vectors/delete", _WRITE, _body, parse_body=json_object),
    _row("POST", "/namespaces", _WRITE, PineconeSources.created, parse_body=json_object),
    _row("DELETE", "/namespaces/{namespace}", _WRITE, _path, _hint),
    _row("POST", f"{_R}/upsert", _WRITE, _path, _hint),
    *(
        _row("POST", f"{_D}/{what}", _WRITE, _path, _hint)
        for what in ("upsert", "update", "delete")
    ),
    _row("POST", _FILES, _WRITE, PineconeSources.of_assistant, PineconeSources.hint_of_assistant),
    _row(
        "DELETE",
        f"{_FILES}/{{file}}",
        _WRITE,
        PineconeSources.of_assistant,
        PineconeSources.hint_of_assistant,
    ),
    # They copy from storage outside, into any namespace.
    ProtocolRoute("GET POST", "/bulk/imports", _BULK),
    ProtocolRoute("GET DELETE", "/bulk/imports/{import}", _BULK),
    # An assistant's instructions, and assistants as such.
    ProtocolRoute("GET POST", "/assistant/assistants", RouteClass.ADMIN),
    ProtocolRoute("GET PATCH DELETE", "/assistant/assistants/{assistant}", RouteClass.ADMIN),
)

# INVARIANT: a literal segment stands above a `{parameter}` in its place. What is not here is denied
# as `unclassified_route`: a newer Pinecone opens nothing by itself.
ROUTES = (*(_sieved(*each) for each in _SEARCHES), *_OTHERS)

_TABLE = RouteTable(ROUTES)
# Where records have no level of their own nothing is left out, however a request is put.
_PLAIN = RouteTable(
    (
        *(_plain(methods, path, of, pages=form.pages) for methods, path, of, form in _SEARCHES),
        *_OTHERS,
    )
)
