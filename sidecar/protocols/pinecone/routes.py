"""Routes and error responses for Pinecone's data plane (`protocols/RULES.md`, Pinecone; API 2026-07
and its client 10.2). The errors have gRPC's codes, as Pinecone's do.

An index has its own host, so the configured alias stands for the index. A request reads one of its
namespaces, named in the path, the query or the body.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from sidecar.protocols.pinecone.sources import (
    FETCH,
    FETCH_BY_METADATA,
    FETCH_DOCUMENTS,
    QUERY,
    SEARCH,
    SEARCH_DOCUMENTS,
    Body,
    PineconeSources,
    QueryForm,
    filtered,
    withhold,
)
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardPlan,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteTable,
    SourceProtocol,
    Sources,
    Unresolved,
    Visibility,
    without_waiting,
)
from sidecar.protocols.shared.responses import error_response, expect_list, expect_object, levels_of
from sidecar.protocols.shared.strict_queries import read_members, read_parameters
from sidecar.protocols.strict_body import json_object, optional_json_object
from sidecar.settings.model import Source

_CODES = {
    400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT", 502: "UNAVAILABLE", 503: "UNAVAILABLE",
}  # fmt: skip


class Pinecone(PineconeSources, SourceProtocol):
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self.table = _TABLE_WITHOUT_LEVELS if source.sensitivity_field is None else _TABLE

    def render_refusal(
        self, _request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse:
        error = {"code": _CODES.get(refusal.status, "INTERNAL"), "message": refusal.message}
        return error_response(refusal, {"error": error, "status": refusal.status})

    def plan_filtered(
        self, form: QueryForm, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        """Return the plan that filters records by level, and remembers the token of the next
        page."""
        levels = levels_of(visibility)
        if levels is None and form.paged:
            return self.plan_paged(request, sources, visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        narrowed = form.narrow(request.body, levels)
        remember = partial(self._remember_page, request, sources)
        step = withhold(form, levels, narrowed)
        body = None if narrowed.body is None else orjson.dumps(narrowed.body)
        return ForwardPlan(body, lambda response: filtered(response, remember, step))

    def plan_paged(
        self, request: RoutedRequest, sources: Sources, _visibility: Visibility
    ) -> ForwardPlan:
        """Return the plan that passes the response unchanged, and remembers the token of the next
        page."""
        remember = partial(self._remember_page, request, sources)
        return ForwardPlan(filter_response=lambda response: filtered(response, remember))

    def plan_namespaces(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        """Return the plan that filters a list of namespaces, `{"namespaces": [{"name"}],
        "total_count"}`."""

        def step(whole: Body) -> tuple[int, bool]:
            found = expect_list(whole.get("namespaces") or [], "list")
            names = [expect_object(each, "list").get("name") for each in found]
            named = zip(found, names, strict=True)
            whole["namespaces"] = [each for each, own in named if self._may_see(own, visibility)]
            # The total covers all pages, including the namespaces that the agent may not see.
            whole.pop("total_count", None)
            return 0, True

        return ForwardPlan(filter_response=lambda response: filtered(response, step))

    def plan_stats(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        """Return the plan that filters index statistics, `{"namespaces": {name: {"vectorCount"}},
        "totalVectorCount"}`."""

        def step(whole: Body) -> tuple[int, bool]:
            found = expect_object(whole.get("namespaces") or {}, "response")
            seen = {name: each for name, each in found.items() if self._may_see(name, visibility)}
            if len(seen) == len(found):
                return 0, False
            # Totals over every namespace would reveal how much is in the hidden ones.
            whole["namespaces"] = seen
            counts = (expect_object(each, "response").get("vectorCount") for each in seen.values())
            whole["totalVectorCount"] = sum(count or 0 for count in counts)
            whole.pop("indexFullness", None)
            return 0, True

        return ForwardPlan(filter_response=lambda response: filtered(response, step))

    def refine_stats(self, request: RoutedRequest) -> ProtocolRoute:
        """Return the route for index statistics. Raises `Unresolved` if the request has a filter:
        the statistics would then reveal what is in every namespace."""
        [given] = read_members(request.body or {}, "filter")
        [stated] = read_parameters(request.target.query, "filter")
        if given or stated:
            raise Unresolved("statistics with a `filter` concern every namespace at once")
        return _STATS

    def _may_see(self, name: object, visibility: Visibility) -> bool:
        return visibility.permits(self._of(name if isinstance(name, str) else ""))


_RETRIEVE, _METADATA = RouteClass.RETRIEVE, RouteClass.METADATA
_WRITE, _BULK = RouteClass.WRITE, RouteClass.BULK
_path, _body, _hint = PineconeSources.of_path, PineconeSources.of_body, PineconeSources.hint
_assistant, _hint_assistant = PineconeSources.of_assistant, PineconeSources.hint_of_assistant

FindSources = Callable[[Any, RoutedRequest], Sources]

_R, _D = "/records/namespaces/{namespace}", "/namespaces/{namespace}/documents"
_CHAT, _FILES = "/assistant/chat/{assistant}", "/assistant/files/{assistant}"


def _route(
    methods: str, path: str, class_: RouteClass, find: FindSources, hint: Any = None, **more: Any
) -> ProtocolRoute:
    """Return a route whose sources are found in the request itself, without a look-up."""
    found = without_waiting(find)
    return ProtocolRoute(methods, path, class_, found, hint, find_sources_now=find, **more)


def _unfiltered_route(
    methods: str, path: str, find: FindSources, *, paged: bool = False
) -> ProtocolRoute:
    route = _route(methods, path, _RETRIEVE, find, forwards_unchanged=True)
    parse_body = None if methods == "GET" else json_object
    plan_forward = Pinecone.plan_paged if paged else None
    return replace(route, parse_body=parse_body, plan_forward=plan_forward)


def _filtered_route(unfiltered: ProtocolRoute, form: QueryForm) -> ProtocolRoute:
    """Return a route for the same retrieval as `unfiltered`, but with its records filtered."""

    def plan(
        pinecone: Pinecone, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        return pinecone.plan_filtered(form, request, sources, visibility)

    def refine(_pinecone: Pinecone, request: RoutedRequest) -> ProtocolRoute:
        # A request that can't be narrowed gets the unfiltered row, which is judged at `critical`.
        return filtering if form.filterable(request.body) else unfiltered

    filtering = replace(unfiltered, plan_forward=plan, filters_documents=True)
    return replace(filtering, refine=refine)


# Statistics of the whole index. The filter of the response decides which namespaces they show.
_plan = Pinecone.plan_stats
_STATS = ProtocolRoute("GET POST", "/describe_index_stats", _METADATA, plan_forward=_plan)

_SEARCHES: tuple[tuple[str, str, FindSources, QueryForm], ...] = (
    ("POST", "/query", PineconeSources.of_queries, QUERY),
    ("GET", "/vectors/fetch", PineconeSources.of_query, FETCH),
    ("POST", "/vectors/fetch_by_metadata", _body, FETCH_BY_METADATA),
    ("POST", f"{_R}/search", PineconeSources.of_records, SEARCH),
    ("POST", f"{_D}/search", PineconeSources.of_documents, SEARCH_DOCUMENTS),
    ("POST", f"{_D}/fetch", PineconeSources.of_documents, FETCH_DOCUMENTS),
)
_OTHERS = (
    # Not filtered: ids without metadata don't show which level their records have.
    _unfiltered_route("GET", "/vectors/list", PineconeSources.of_query, paged=True),
    _unfiltered_route("POST", f"{_D}/list", PineconeSources.of_documents, paged=True),
    # An assistant answers from any of its files, so no condition on the level can be added.
    _route("POST", _CHAT, _RETRIEVE, _assistant),
    _route("POST", f"{_CHAT}/context", _RETRIEVE, _assistant),
    _route("POST", f"{_CHAT}/chat/completions", _RETRIEVE, _assistant),
    _route("GET", _FILES, _RETRIEVE, _assistant),
    _route("GET", f"{_FILES}/{{file}}", _RETRIEVE, _assistant),
    ProtocolRoute("GET", "/namespaces", _METADATA, plan_forward=Pinecone.plan_namespaces),
    _route("GET", "/namespaces/{namespace}", _METADATA, _path),
    replace(_STATS, parse_body=optional_json_object, refine=Pinecone.refine_stats),
    _route("POST", "/vectors/upsert", _WRITE, _body, parse_body=json_object),
    _route("POST", "/vectors/update", _WRITE, _body, parse_body=json_object),
    _route("POST", "/vectors/delete", _WRITE, _body, parse_body=json_object),
    _route("POST", "/namespaces", _WRITE, PineconeSources.of_created, parse_body=json_object),
    _route("DELETE", "/namespaces/{namespace}", _WRITE, _path, _hint),
    _route("POST", f"{_R}/upsert", _WRITE, _path, _hint),
    _route("POST", f"{_D}/upsert", _WRITE, _path, _hint),
    _route("POST", f"{_D}/update", _WRITE, _path, _hint),
    _route("POST", f"{_D}/delete", _WRITE, _path, _hint),
    _route("POST", _FILES, _WRITE, _assistant, _hint_assistant),
    _route("DELETE", f"{_FILES}/{{file}}", _WRITE, _assistant, _hint_assistant),
    # Imports copy from external storage, into any namespace.
    ProtocolRoute("GET POST", "/bulk/imports", _BULK),
    ProtocolRoute("GET DELETE", "/bulk/imports/{import}", _BULK),
    # These change assistants and their instructions.
    ProtocolRoute("GET POST", "/assistant/assistants", RouteClass.ADMIN),
    ProtocolRoute("GET PATCH DELETE", "/assistant/assistants/{assistant}", RouteClass.ADMIN),
)

_UNFILTERED = [
    (_unfiltered_route(methods, path, find, paged=form.paged), form)
    for methods, path, find, form in _SEARCHES
]

# INVARIANT: a literal segment comes before a `{parameter}` in the same position. A route that is
# not listed is denied as `unclassified_route`, so that an upgrade of Pinecone opens nothing by
# itself.
ROUTES = (*(_filtered_route(route, form) for route, form in _UNFILTERED), *_OTHERS)

_TABLE = RouteTable(ROUTES)
# Without `sensitivity_field` nothing is filtered, so all requests of a route share one row, which
# has nothing to refine.
_TABLE_WITHOUT_LEVELS = RouteTable((*(route for route, _ in _UNFILTERED), *_OTHERS))
