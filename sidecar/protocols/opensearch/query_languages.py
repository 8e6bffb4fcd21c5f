"""Query languages: SQL and PPL of OpenSearch, SQL and ES|QL of Elasticsearch. What a query reads
stands in its text; what the text's reader here can't tell is denied.

Each function takes the server first, as a row of the table hands it over.
"""

from collections.abc import Iterable

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.request_target import encode_segment
from sidecar.protocols.budget import OverBudget
from sidecar.protocols.messages import (
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    SourceRef,
    Unresolved,
    Visibility,
)
from sidecar.protocols.opensearch.indices import is_pattern, items
from sidecar.protocols.opensearch.piped_queries import indices_of_esql, indices_of_ppl
from sidecar.protocols.opensearch.references import of_query
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    loaded,
    read_query,
    text_member,
    union,
)
from sidecar.protocols.opensearch.sql import indices_of_sql

Places = tuple[SourceRef, ...]

_USUAL = frozenset(
    (
        "allow_partial_results",
        "allow_partial_search_results",
        "columnar",
        "fetch_size",
        "field_multi_value_leniency",
        "filter",
        "include_ccs_metadata",
        "include_execution_metadata",
        "keep_alive",
        "keep_on_completion",
        "locale",
        "page_timeout",
        "parameters",
        "params",
        "profile",
        "query",
        "request_timeout",
        "runtime_mappings",
        "time_zone",
        "wait_for_completion_timeout",
    )
)
"""What a body may say beside its query. Not `tables`, `catalog`, `settings` or `project_routing`:
they change what its names mean."""

_BESIDE_CURSOR = frozenset(("columnar", "cursor", "page_timeout", "request_timeout", "time_zone"))

# Wider than any of the languages reads a pattern.
_WIDE = "open,hidden"


async def by_sql(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of a SQL query, or what its cursor was issued for."""
    if isinstance(asked.body, dict) and "cursor" in asked.body:
        return await by_cursor(server, asked)
    query = _query(asked)
    return await _places(server, asked, indices_of_sql(query))


async def by_cursor(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """What the cursor was issued for."""
    read_query(asked)
    if not asked.body.keys() <= _BESIDE_CURSOR:
        raise Malformed("a query and a cursor are stated")
    return server.issued.sources_of(text_member(asked.body, "cursor"), asked.attribution)


async def closed_cursor(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """A cursor that is given back: it must be the caller's own, and nothing is read."""
    text_member(asked.body, "cursor")
    await by_cursor(server, asked)
    return ()


async def by_ppl(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of a PPL query."""
    return await _places(server, asked, indices_of_ppl(_query(asked)))


async def by_esql(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of an ES|QL query, and those that its enrich policies were made of."""
    named, policies = indices_of_esql(_query(asked))
    names = [name for each in named for name in items(each)]
    if any(map(is_pattern, names)):
        raise Unresolved("a pattern may match a view, which reads what can't be told: use names")
    found = await _places(server, asked, named)
    for policy in policies:
        made_of = await _enriching(items(policy)[0], asked)
        found = union(found, await server.indices.places(made_of, asked, strict=True))
    return found


def learning(
    server: OpenSearchServer, asked: RoutedRequest, places: Places, _sight: Visibility
) -> ForwardPlan:
    """The answer as it is; its cursor is remembered, or its id."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        server.learn(loaded(answer), asked, places)
        for name, value in answer.fields:
            # In a format that has no place for it.
            if name.lower() == b"cursor":
                server.issued.remember(value.decode("latin-1"), asked.attribution, places)
        return ForwardedPart(answer.body)

    return ForwardPlan(filter_response=read)


def _query(asked: RoutedRequest) -> str:
    read_query(asked)
    query = text_member(asked.body, "query")
    for key in asked.body:
        if key not in _USUAL:
            raise Unresolved(f"what `{key[:64]}` does to a query is not known here")
    return query


async def _places(server: OpenSearchServer, asked: RoutedRequest, named: Iterable[str]) -> Places:
    names = [name for each in named for name in items(each)]
    found = await server.indices.places(names, asked, wide=_WIDE, strict=True)
    beside = of_query([asked.body.get("filter"), asked.body.get("runtime_mappings")])
    return union(found, await server.indices.places(sorted(beside), asked, wide=_WIDE))


async def _enriching(policy: str, asked: RoutedRequest) -> tuple[str, ...]:
    """The indices that an enrich policy was made of."""
    try:
        answer = await asked.fetch(f"/_enrich/policy/{encode_segment(policy)}")
        if answer.status != 200:
            raise Unresolved(f"policy `{policy}` can't be looked up: status {answer.status}")
        [one] = orjson.loads(answer.body)["policies"]
        [config] = one["config"].values()
        if config["name"] == policy:
            return items(config["indices"])
    except OverBudget:
        raise
    except UpstreamFailed as error:
        raise Unresolved(f"policy `{policy}` can't be looked up: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, Malformed) as error:
        raise Unresolved(f"policy `{policy}` is described in a way unknown") from error
    raise Unresolved(f"policy `{policy}` is described as another")
