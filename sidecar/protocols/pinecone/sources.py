"""Finds the namespaces that a Pinecone request concerns, and remembers those of each page token.
Also filters records by their own level: adds a condition to the caller's `filter`, requests the
level's field, and checks every record of the response."""

from collections.abc import Callable
from typing import Any, NamedTuple

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.pinecone.wires import Body, Wire
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardedPart,
    RoutedRequest,
    SourceRef,
    Sources,
)
from sidecar.protocols.shared.caches import Continuations
from sidecar.protocols.shared.responses import DocumentLevels, expect_list, expect_object
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_queries import read_members, read_parameters
from sidecar.settings.model import Source

# The members of a scoring clause that state what to search for and refer to no stored record.
_CLAUSE = frozenset(("type", "query", "field", "fields", "values", "sparse_values"))

ResponseStep = Callable[[Body], tuple[int, bool]]
"""A step that changes a parsed response in place. Returns the number of records that it withheld,
and whether it changed anything."""

# The structured members that a response may hold apart from its records.
_OTHER_MEMBERS = frozenset(("usage", "pagination"))


class FilteredQuery(NamedTuple):
    """A request as it is forwarded with its conditions, and the function that removes the sidecar's
    additions from each record of the response."""

    body: Body | None
    """The body to forward; None for a request without a body."""
    strip: Callable[[Body], bool]
    """Removes from a record the fields that the agent didn't ask for. Returns whether there were
    any."""


class QueryForm(NamedTuple):
    narrow: Callable[[Any, DocumentLevels], FilteredQuery]
    records_at: tuple[str, ...]
    """The path of members that leads to the records in the response."""
    metadata: str | None
    """The member of a record that holds its metadata; None if the record itself is the metadata."""
    by_id: bool = False
    """True if the records are an object keyed by id, instead of a list."""
    filterable: Callable[[Any], bool] = lambda _body: True
    """Returns whether a condition on levels can be added to a request with this body."""
    paged: bool = False
    """True if the response may contain the token of a next page."""


def withhold(
    wire: Wire, form: QueryForm, levels: DocumentLevels, forwarded: FilteredQuery
) -> ResponseStep:
    *outer, last = form.records_at

    def step(whole: Body) -> tuple[int, bool]:
        # Check before anything is cut: a response of another form may hold records elsewhere.
        _check_form(whole, form)
        holder = whole
        for name in outer:
            holder = expect_object(holder.get(name), "response")
        found = holder.get(last)
        if found is None:
            return 0, False
        kept: Any
        if form.by_id:
            records = expect_object(found, "response").items()
            kept = {key: record for key, record in records if may_see(record)}
        else:
            kept = [record for record in expect_list(found, "response") if may_see(record)]
        holder[last] = kept
        # A list, so that `any` below doesn't stop at the first stripped record.
        stripped = [forwarded.strip(each) for each in (kept.values() if form.by_id else kept)]
        return len(found) - len(kept), len(kept) < len(found) or any(stripped)

    def may_see(record: Any) -> bool:
        checked = expect_object(record, "record")
        if form.metadata is None:
            return levels.may_see(checked)
        return levels.may_see(wire.read_metadata(checked.get(form.metadata), levels))

    return step


def _check_form(whole: Body, form: QueryForm) -> None:
    """Raise `UpstreamFailed` if a response has a list or object that is unknown and not empty: it
    may hold records, which would pass unchecked."""
    # It may hold records, which would pass unchecked. If it is empty, there are none.
    for name, value in whole.items():
        known = name == form.records_at[0] or name in _OTHER_MEMBERS
        if not known and isinstance(value, (list, dict)) and value:
            raise UpstreamFailed(f"the data source's response has the unknown member `{name[:64]}`")


def filtered(wire: Wire, response: FetchedResponse, *steps: ResponseStep) -> ForwardedPart:
    """Apply `steps` to a response, and return the part to forward. It has the data source's own
    bytes if no step changed anything."""
    whole = wire.read_response(response)
    results = [step(whole) for step in steps]
    changed = any(changed for _, changed in results)
    body = wire.write_response(whole) if changed else response.body
    return ForwardedPart(body, sum(withheld for withheld, _ in results))


def _narrow_query(body: Body, levels: DocumentLevels) -> FilteredQuery:
    narrowed = _with_condition(body, levels)
    # The check needs the metadata. If the agent didn't ask for them, they are removed again.
    requested = narrowed.get("includeMetadata") is True
    narrowed["includeMetadata"] = True
    return FilteredQuery(narrowed, _strip_nothing if requested else _strip_metadata)


def _narrow_search(body: Body, levels: DocumentLevels) -> FilteredQuery:
    narrowed = {**body, "query": _with_condition(body["query"], levels)}
    if narrowed.get("fields") is None:
        # Without a list of fields, a hit has all of them.
        return FilteredQuery(narrowed, _strip_nothing)
    return _requesting_level(narrowed, "fields", levels, lambda hit: hit.get("fields"))


def _narrow_document_search(body: Body, levels: DocumentLevels) -> FilteredQuery:
    narrowed = _with_condition(body, levels)
    return _requesting_level(narrowed, "include_fields", levels, lambda document: document)


def _narrow_document_fetch(body: Body, levels: DocumentLevels) -> FilteredQuery:
    # A fetch by ids takes no filter, so only the check of the response withholds documents.
    narrowed = dict(body) if body.get("filter") is None else _with_condition(body, levels)
    if not narrowed.get("include_fields"):
        return FilteredQuery(narrowed, _strip_nothing)
    return _requesting_level(narrowed, "include_fields", levels, lambda document: document)


def _with_condition(body: Body, levels: DocumentLevels) -> Body:
    if not levels.filterable:
        # The agent may see records without a level, and these would match no condition on it.
        return dict(body)
    # Both conditions must hold, so nothing in the agent's own filter can undo this one.
    condition = {".".join(levels.path): {"$in": list(levels.levels)}}
    own = body.get("filter")
    return {**body, "filter": {"$and": [condition, own]} if own else condition}


def _requesting_level(
    body: Body, member: str, levels: DocumentLevels, fields_of: Callable[[Body], Any]
) -> FilteredQuery:
    """Return `body` with the level's field added to the fields that `member` requests. `fields_of`
    finds the fields of a record in the response; from these, the level is removed again."""
    level, requested = ".".join(levels.path), body.get(member) or []
    if "*" in requested or level in requested:
        return FilteredQuery(body, _strip_nothing)

    def strip(record: Body) -> bool:
        fields = fields_of(record)
        return isinstance(fields, dict) and fields.pop(level, None) is not None

    return FilteredQuery({**body, member: [*requested, level]}, strip)


def _strip_nothing(_record: Body) -> bool:
    return False


def _strip_metadata(record: Body) -> bool:
    return record.pop("metadata", None) is not None


def _by_value(body: Any) -> bool:
    # A query by a record's id reveals what that record is similar to.
    return isinstance(body, dict) and body.get("id") is None and body.get("queries") is None


def _scored_by_value(body: Body) -> bool:
    # An unknown member of a clause may refer to a stored record.
    clauses = body.get("score_by")
    return isinstance(clauses, list) and all(
        isinstance(each, dict) and not each.keys() - _CLAUSE for each in clauses
    )


QUERY = QueryForm(_narrow_query, ("matches",), "metadata", filterable=_by_value)
# A fetch by ids in the query takes no condition: only the check of its response withholds records.
FETCH = QueryForm(
    lambda _body, _levels: FilteredQuery(None, _strip_nothing), ("vectors",), "metadata", by_id=True
)
FETCH_BY_METADATA = QueryForm(
    lambda body, levels: FilteredQuery(_with_condition(body, levels), _strip_nothing),
    ("vectors",), "metadata", by_id=True, paged=True,
)  # fmt: skip
SEARCH = QueryForm(
    _narrow_search, ("result", "hits"), "fields",
    filterable=lambda body: _by_value(body.get("query")),
)  # fmt: skip
SEARCH_DOCUMENTS = QueryForm(
    _narrow_document_search, ("matches",), None, filterable=_scored_by_value
)
FETCH_DOCUMENTS = QueryForm(_narrow_document_fetch, ("documents",), None, by_id=True, paged=True)


class PineconeSources:
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._pages = Continuations(monotonic)

    def of_path(self, request: RoutedRequest) -> Sources:
        return (self.hint(request),)

    def of_query(self, request: RoutedRequest) -> Sources:
        """Return the namespace that the query string names, and the namespaces that its page token
        stands for."""
        # Both are judged, since the agent could state another namespace beside a token.
        name, token = read_parameters(request.target.query, "namespace", "paginationToken")
        return _distinct(self._of(name), *self._page_sources(request, token))

    def of_body(self, request: RoutedRequest) -> Sources:
        """Return the namespace that the body names, and the namespaces that its page token stands
        for."""
        name, token = read_members(request.body, "namespace", "paginationToken")
        _check_filter(request.body)
        return _distinct(self._of(name), *self._page_sources(request, token))

    def of_queries(self, request: RoutedRequest) -> Sources:
        """Return the namespace of a query, and those of each of its `queries`, which an older API
        accepts."""
        name, queries = read_members(request.body, "namespace", "queries")
        names = [name]
        if not isinstance(queries, list | None):
            raise Malformed("`queries` must be a list of objects")
        for each in queries or ():
            if not isinstance(each, dict):
                raise Malformed("`queries` must be a list of objects")
            # Each of them is a search of its own, so it counts as a sub-request.
            request.budget.charge_parts(1)
            names += read_members(each, "namespace")
        _check_filter(request.body, "includeMetadata", "id")
        return _distinct(*map(self._of, names))

    def of_records(self, request: RoutedRequest) -> Sources:
        [query] = read_members(request.body, "query")
        if not isinstance(query, dict):
            raise Malformed("`query` must be an object")
        _check_filter(query, "id")
        _check_names(request.body, "fields")
        return (self._of(request.path_params[0]),)

    def of_documents(self, request: RoutedRequest) -> Sources:
        """Return the namespace of a search of documents, and the namespaces that its page token
        stands for."""
        [token] = read_members(request.body, "pagination_token")
        _check_filter(request.body, "score_by", "ids")
        _check_names(request.body, "include_fields")
        return _distinct(self._of(request.path_params[0]), *self._page_sources(request, token))

    def of_created(self, request: RoutedRequest) -> Sources:
        [name] = read_members(request.body, "name")
        return (self._of(name),)

    def of_assistant(self, request: RoutedRequest) -> Sources:
        """Return the assistant that the path names, which stands for all its files."""
        return (self.hint_of_assistant(request),)

    def hint(self, request: RoutedRequest) -> SourceRef:
        return self._of(request.path_params[0])

    def hint_of_assistant(self, request: RoutedRequest) -> SourceRef:
        return self._naming.of("assistant", request.path_params[0])

    def _of(self, name: object) -> SourceRef:
        # To Pinecone, the empty namespace and `__default__` are the same.
        if not isinstance(name, str | None):
            raise Malformed("`namespace` must be a string")
        return self._naming.of(name or "__default__")

    def _page_sources(self, request: RoutedRequest, token: object) -> Sources:
        # An empty token asks for the first page.
        if not isinstance(token, str | None):
            raise Malformed("the page token must be a string")
        return self._pages.sources_of(token, request.attribution) if token else ()

    def _remember_page(
        self, request: RoutedRequest, sources: Sources, whole: Body
    ) -> tuple[int, bool]:
        """Remember for which sources the token of the next page was issued. This is a
        `ResponseStep` once its first two arguments are bound."""
        pagination = whole.get("pagination")
        if pagination is not None:
            token = expect_object(pagination, "page").get("next")
            if isinstance(token, str) and token:
                self._pages.remember(token, request.attribution, sources)
        # Nothing was withheld or changed, so this step alone keeps Pinecone's own bytes.
        return 0, False


def _distinct(*sources: SourceRef) -> Sources:
    return tuple(dict.fromkeys(sources))


def _check_filter(body: Body, *names: str) -> None:
    """Raise `Malformed` unless the members on which filtering depends have the right form: `filter`
    must be an object, and no other key may be mistaken for it or one of `names`."""
    # `read_members` refuses a name that a more lenient parser would take for one of them.
    [given, *_] = read_members(body, "filter", *names)
    if given is not None and not isinstance(given, dict):
        raise Malformed("`filter` must be an object")


def _check_names(body: Body, name: str) -> None:
    [given] = read_members(body, name)
    if given is not None and not (
        isinstance(given, list) and all(isinstance(each, str) for each in given)
    ):
        raise Malformed(f"`{name}` must be a list of strings")
