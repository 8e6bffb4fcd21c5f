"""A search and its continuations: what it concerns, and what of its answer may be seen.

A continuation stands for what the search before it concerned, and is judged anew at every use. Each
function takes the server first, as a row of the table hands it over.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    SourceRef,
    Visibility,
)
from sidecar.protocols.opensearch import query_filter as sieve
from sidecar.protocols.opensearch.references import of_search
from sidecar.protocols.opensearch.result_filter import ResultFilter
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    any_index,
    loaded,
    read_query,
    text_member,
    union,
)
from sidecar.protocols.opensearch.source_filtering import ShownFields
from sidecar.protocols.shared.document_levels import to_json

Places = tuple[SourceRef, ...]


async def by_search(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of the path, or of the point in time, and those that the body names."""
    query, body = read_query(asked), asked.body
    names = sorted(of_search(body))
    if body is None or body.get("pit") is None:
        return await server.places([*any_index(asked), *names], asked, query)
    issued = server.issued.sources_of(text_member(body["pit"], "id"), asked.attribution)
    if asked.path_params:
        names += any_index(asked)
    return union(issued, await server.places(names, asked, query))


def fits_search(server: OpenSearchServer, asked: RoutedRequest) -> bool:
    """Whether a search can be sieved."""
    field = server.marked
    if field is None or of_search(asked.body):
        return False
    return sieve.fits(asked.body, read_query(asked), field)


def whole_search(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, _sight: Visibility
) -> ForwardPlan:
    """A search as it is; its continuation is remembered."""
    if "scroll" not in read_query(asked) and not (asked.body and asked.body.get("pit")):
        return FORWARD_UNCHANGED
    return learning(server, asked, places)


def whole_async(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, _sight: Visibility
) -> ForwardPlan:
    """A search whose answer may come later."""
    return learning(server, asked, places)


def sieved_search(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, sight: Visibility
) -> ForwardPlan:
    if sight.levels is None:
        return whole_search(server, asked, places, sight)
    body, shown = sieve.narrowed(asked.body, sight)
    return ForwardPlan(orjson.dumps(body), _proving(server, asked, places, sight, shown))


def sieved_async(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, sight: Visibility
) -> ForwardPlan:
    if sight.levels is None:
        return whole_async(server, asked, places, sight)
    body, shown = sieve.narrowed(asked.body, sight)
    return ForwardPlan(orjson.dumps(body), _proving(server, asked, places, sight, shown))


def scroll_token(asked: RoutedRequest) -> str:
    """The scroll that is gone on with: stated once, in the body or the path."""
    return _token(asked, "scroll_id", frozenset(("scroll", "scroll_id")))


def _token(asked: RoutedRequest, member: str, members: frozenset[str]) -> str:
    if asked.path_params and asked.body is not None:
        raise Malformed("the continuation is stated twice")
    if asked.path_params:
        return asked.path_params[0]
    if asked.body is not None and not asked.body.keys() <= members:
        raise Malformed("the body says more than which continuation is meant")
    return text_member(asked.body, member)


async def by_scroll(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """What the scroll was begun for."""
    read_query(asked)
    return server.issued.sources_of(scroll_token(asked), asked.attribution)


async def by_identity(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """What the search in the path was begun for."""
    read_query(asked)
    return server.issued.sources_of(asked.path_params[0], asked.attribution)


def next_page(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, sight: Visibility
) -> ForwardPlan:
    """More of a scroll."""
    return _continued(server, asked, places, sight, scroll_token(asked))


def later(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, sight: Visibility
) -> ForwardPlan:
    """What became of a search whose answer comes later."""
    return _continued(server, asked, places, sight, asked.path_params[0])


def _continued(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, sight: Visibility, token: str
) -> ForwardPlan:
    if sight.levels is None:
        return learning(server, asked, places)
    # Begun when more could be seen, it may lack the mark: then nothing of it is shown.
    shown = ShownFields(mark=not server.mark_is_hidden(token, asked.attribution))
    return ForwardPlan(filter_response=_proving(server, asked, places, sight, shown))


async def freed(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """Continuations that are given back. They must be the caller's own; nothing is read."""
    read_query(asked)
    stated: list[Any] = asked.path_params[0].split(",") if asked.path_params else []
    body = asked.body or {}
    if not body.keys() <= {"scroll_id", "pit_id", "id"} or len(body) + bool(stated) != 1:
        raise Malformed("the request does not say once which continuations are meant")
    for value in body.values():
        stated = value if isinstance(value, list) else [value]
    for token in stated:
        if not isinstance(token, str) or not token:
            raise Malformed("a continuation is not stated as a text")
        server.issued.sources_of(token, asked.attribution)
    return ()


def _proving(
    server: OpenSearchServer,
    asked: RoutedRequest,
    places: Places,
    sight: Visibility,
    shown: ShownFields,
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Reads a search's answer, or one that holds it as `response`."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        proof, whole = ResultFilter(sight), loaded(answer)
        if not isinstance(whole, dict):
            raise UpstreamFailed("the data source's answer can't be read")
        proof.search(whole, shown)
        if "response" in whole:
            proof.search(whole["response"], shown)
        server.learn(whole, asked, places)
        if not shown.mark:
            server.hide_mark(whole, asked, places)
        return ForwardedPart(to_json(whole), proof.withheld)

    return read


def learning(server: OpenSearchServer, asked: RoutedRequest, places: Places) -> ForwardPlan:
    def read(answer: FetchedResponse) -> ForwardedPart:
        server.learn(loaded(answer), asked, places)
        return ForwardedPart(answer.body)

    return ForwardPlan(filter_response=read)
