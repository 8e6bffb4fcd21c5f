"""Several searches or several documents in one body: what they concern together, and what of each
answer may be seen.

Each function takes the server first, as a row of the table hands it over.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    SourceRef,
    Unresolved,
    Visibility,
)
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch import query_filter as sieve
from sidecar.protocols.opensearch.indices import items, widths
from sidecar.protocols.opensearch.references import of_query, of_search
from sidecar.protocols.opensearch.result_filter import ResultFilter
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    any_index,
    loaded,
    objects,
    read_query,
    text_member,
    union,
)
from sidecar.protocols.shared.document_levels import to_json

Places = tuple[SourceRef, ...]


class SearchLine(NamedTuple):
    """One search of several: its names, what its patterns cover, and its body."""

    names: tuple[str, ...]
    wide: str | None
    head: dict[str, Any]
    body: dict[str, Any]


_HEAD = frozenset(
    (
        "allow_no_indices",
        "allow_partial_search_results",
        "ccs_minimize_roundtrips",
        "expand_wildcards",
        "ignore_throttled",
        "ignore_unavailable",
        "index",
        "indices",
        "max_concurrent_shard_requests",
        "preference",
        "request_cache",
        "routing",
        "search_type",
    )
)


def searches(asked: RoutedRequest, query: dict[str, str]) -> list[SearchLine]:
    """The searches of a body of lines: a head and a body each."""
    if not asked.body or len(asked.body) % 2:
        raise Malformed("the last search has no body")
    found = []
    usual = cache(partial(any_index, asked))
    for head, body in zip(asked.body[::2], asked.body[1::2], strict=True):
        if not head.keys() <= _HEAD or ("index" in head and "indices" in head):
            raise Unresolved("what the head of a search says is not known here")
        stated = head.get("index", head.get("indices"))
        names = usual() if stated is None else items(stated)
        if stated is None and ("index" in head or "indices" in head):
            raise Malformed("an index is not stated as a name")
        wide = widths(head.get("expand_wildcards", query.get("expand_wildcards")))
        found.append(SearchLine(names, wide, head, body))
    return found


async def by_searches(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of several searches in one body."""
    found: Places = ()
    # By what their patterns cover, since that is part of a look-up: each name is looked up once,
    # however many searches name it.
    named: dict[str | None, dict[str, None]] = {}
    for line in searches(asked, read_query(asked)):
        names = [*line.names, *sorted(of_search(line.body))]
        if line.body.get("pit") is not None:
            names = sorted(of_search(line.body))
            if {"index", "indices"} & line.head.keys() or asked.path_params:
                names += line.names
            token = text_member(line.body["pit"], "id")
            found = union(found, server.issued.sources_of(token, asked.attribution))
            asked.budget.charge_sources(place.source_id for place in found)
        named.setdefault(line.wide, {}).update(dict.fromkeys(names))
    for wide, names_ in named.items():
        found = union(found, await server.indices.places(names_, asked, wide=wide))
    return found


def fits_searches(server: OpenSearchServer, asked: RoutedRequest) -> bool:
    """Whether each of several can."""
    query, field = read_query(asked), server.marked
    return field is not None and all(
        not of_search(line.body) and sieve.fits(line.body, query, field)
        for line in searches(asked, query)
    )


def sieved_searches(
    _server: OpenSearchServer, asked: RoutedRequest, _places: Places, sight: Visibility
) -> ForwardPlan:
    if sight.levels is None:
        return FORWARD_UNCHANGED
    found = [
        (line.head, *sieve.narrowed(line.body, sight))
        for line in searches(asked, read_query(asked))
    ]
    body = b"".join(orjson.dumps(each) + b"\n" for head, body, _ in found for each in (head, body))

    def read(answer: FetchedResponse) -> ForwardedPart:
        proof, whole = ResultFilter(sight), loaded(answer)
        parts = objects(whole, "responses", UpstreamFailed)
        if len(parts) != len(found):
            raise UpstreamFailed("the data source answers another number of searches")
        for part, (_, _, shown) in zip(parts, found, strict=True):
            proof.search(part, shown)
        return ForwardedPart(to_json(whole), proof.withheld)

    return ForwardPlan(body, read)


async def by_documents(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of several documents by id, in one body."""
    query, body = read_query(asked), asked.body or {}
    if not body.keys() <= {"docs", "ids", "parameters"}:
        raise Malformed("the body asks for more than documents")
    names: list[str] = []
    own = objects({"parameters": [body.get("parameters", {})]}, "parameters")[0].get("_index")
    if own is not None:
        names += items(own)
    documents = objects(body, "docs")
    asked.budget.charge_parts(len(documents))
    usual = cache(partial(any_index, asked))
    for document in documents:
        own = document.get("_index")
        names += usual() if own is None else items(own)
        # A document that stands in the request is no query.
        names += of_query({key: document[key] for key in document if key not in ("_index", "doc")})
    if "ids" in body or "ids" in query or not names:
        names += usual()
    return await server.places(names, asked, query)


def fits_document(_server: OpenSearchServer, asked: RoutedRequest) -> bool:
    """Whether the answer to a request by id will show documents' levels."""
    if not parameters.UNTOLD.isdisjoint(read_query(asked)):
        return False
    documents = objects(asked.body or {}, "docs")
    return all({"_source", "stored_fields"}.isdisjoint(each) for each in documents)


def sieved_documents(
    _server: OpenSearchServer, _asked: RoutedRequest, _places: Places, sight: Visibility
) -> ForwardPlan:
    if sight.levels is None:
        return FORWARD_UNCHANGED

    def read(answer: FetchedResponse) -> ForwardedPart:
        proof, whole = ResultFilter(sight), loaded(answer)
        if isinstance(whole, dict) and "docs" in whole:
            parts = objects(whole, "docs", UpstreamFailed)
            whole["docs"] = [proof.document(each) for each in parts]
        else:
            whole = proof.document(whole)
        return ForwardedPart(to_json(whole) if proof.withheld else answer.body, proof.withheld)

    return ForwardPlan(filter_response=read)
