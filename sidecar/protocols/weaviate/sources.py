"""Finds the collections and tenants that a request to Weaviate concerns, including a call of a tool
of Weaviate's own MCP server, at `/v1/mcp` (`protocols/RULES.md`, Weaviate).

A name may be an alias; what counts is the collection it stands for. The sidecar looks it up in the
collection's own definition, and caches it for at most 30 seconds. The list of aliases isn't enough:
it leaves out those that the credentials may not see, although Weaviate follows them.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.mcp.headers import refused
from sidecar.protocols.protocol import (
    FetchedResponse,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    SourceRef,
    Sources,
    Unresolved,
)
from sidecar.protocols.shared.caches import Aliases, DigestCache, credential_key
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_queries import read_members, read_parameters
from sidecar.protocols.strict_body import Budget, OverBudget
from sidecar.protocols.weaviate import graphql
from sidecar.protocols.weaviate.names import (
    MAX_NAMES,
    CollectionDefinition,
    CollectionName,
    beacon_collection,
    object_collection,
    parse_aliases,
    parse_collection,
    parse_definition,
    parse_tenant,
    references_in,
)
from sidecar.settings.model import Source

_TOOLS = {
    "weaviate-query-hybrid": RouteClass.RETRIEVE,
    "search-with-hybrid": RouteClass.RETRIEVE,
    "weaviate-collections-get-config": RouteClass.METADATA,
    "weaviate-objects-upsert": RouteClass.WRITE,
    "insert-one": RouteClass.WRITE,
}
# Methods that concern no collection.
_OPEN = frozenset(("initialize", "ping", "tools/list", "notifications/initialized"))

_V1 = "/v1"

# The members of a REST search. Others are refused: a later version's could name another collection.
_SEARCH_MEMBERS = frozenset((
    "alpha", "autoLimit", "certainty", "consistencyLevel", "distance", "fusionType", "id", "limit",
    "offset", "query", "queryProperties", "returnMetadata", "returnProperties", "targetVector",
    "tenant", "vector", "where",
))  # fmt: skip


def class_of_tool_call(message: Any) -> RouteClass | None:
    """Return the route class of an MCP message, by its method and the tool that it calls; None if
    either is unknown."""
    method, params = read_members(message, "method", "params")
    # Called only because it refuses other spellings of these names.
    read_members(message, "id", "jsonrpc")
    if method in _OPEN:
        return RouteClass.OPEN
    # Any other method, and any other tool, has no row and is denied.
    if method != "tools/call" or not isinstance(params, dict):
        return None
    name, _ = read_members(params, "name", "arguments")
    return _TOOLS.get(name) if isinstance(name, str) else None


def collections_of_tool_call(message: Any, budget: Budget) -> Iterator[CollectionName]:
    """Yield the collections that a tool call concerns: the one that it names, and those to which
    its filters refer."""
    arguments = message["params"].get("arguments")
    if not isinstance(arguments, dict):
        raise Malformed("`arguments` must be an object")
    name, tenant, filters = read_members(arguments, "collection_name", "tenant_name", "filters")
    if name is None:
        raise Unresolved("without `collection_name`, the tool reads every collection")
    target = CollectionName(parse_collection(name), parse_tenant(tenant))
    yield target
    for each in references_in(filters, budget):
        # The other collection may have the same tenants, or none: both are judged.
        yield CollectionName(each)
        yield CollectionName(each, target.tenant)


def render_tool_refusal(message: Any, refusal: RefusalResponse) -> FetchedResponse | None:
    """Return a refusal as a JSON-RPC error, the form for any MCP server; None for a notification,
    which has no response."""
    # The message is None if the request was denied before its body was read.
    if not isinstance(message, dict) or not isinstance(message.get("id"), (str, int)):
        return None
    return refused(refusal, message)


class CollectionDefinitions:
    """Finds the definitions of one Weaviate server's collections, and caches them per
    credentials."""

    def __init__(self, monotonic: Callable[[], float], schema_path: str) -> None:
        self._schema_path = schema_path
        self._known: DigestCache[CollectionDefinition] = DigestCache(monotonic)
        self.clear = self._known.clear

    def cached(self, name: str, request: RoutedRequest) -> CollectionDefinition | None:
        return self._known.get(credential_key(request, name))

    async def find(self, name: str, request: RoutedRequest) -> CollectionDefinition:
        """Return the definition of the collection that `name` stands for; one with `name` itself
        if there is no such collection. Raises `Unresolved` if the look-up fails."""
        if (known := self.cached(name, request)) is not None:
            return known
        # Before the request: a change during the look-up must prevent caching.
        started = self._known.start_lookup()
        try:
            response = await request.fetch(f"{self._schema_path}/{name}")
            if response.status == 404:
                # A name that doesn't exist is judged as written: a write may create it.
                definition = CollectionDefinition(name, {})
            elif response.status == 200:
                definition = parse_definition(orjson.loads(response.body))
            else:
                raise UpstreamFailed(f"the data source answered with status {response.status}")
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"can't look up collection `{name}`: {error}") from error
        key = credential_key(request, name)
        self._known.put(key, definition, len(repr(definition)), started)
        return definition


class WeaviateSources:
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.source_names = SourceNames(source)
        # A Weaviate before 1.32 has no aliases, and answers 404.
        self._aliases = Aliases(monotonic, f"{_V1}/aliases", parse_aliases, absent=(404,))
        self._definitions = CollectionDefinitions(monotonic, f"{_V1}/schema")

    async def of_queries(self, request: RoutedRequest) -> Sources:
        found = (graphql.collections(query, request.budget) for query in request.body)
        return await self._sources(request, chain.from_iterable(found))

    async def of_search(self, request: RoutedRequest) -> Sources:
        # Other spellings that Weaviate accepts, such as `Tenant`, are unknown too.
        if unknown := request.body.keys() - _SEARCH_MEMBERS:
            raise Unresolved(f"`{min(unknown)[:64]}` is not supported in a search")
        tenant = parse_tenant(request.body.get("tenant"))
        names = [CollectionName(request.path_params[0], tenant)]
        for name in references_in(request.body, request.budget):
            # The other collection may have the same tenants, or none: both are judged.
            names += [CollectionName(name), CollectionName(name, tenant)]
        return await self._sources(request, names)

    async def of_path(self, request: RoutedRequest) -> Sources:
        """Return the collection that the path names, with the tenant that the query names."""
        name = CollectionName(request.path_params[0], _query_tenant(request))
        return await self._sources(request, [name])

    async def of_name(self, request: RoutedRequest) -> Sources:
        """Return the collection that the path names, itself or by an alias, with the tenant if the
        path has one."""
        name, *tenant = request.path_params
        return await self._sources(request, [CollectionName(name, *map(parse_tenant, tenant))])

    async def of_listing(self, request: RoutedRequest) -> Sources:
        name, tenant = read_parameters(request.target.query, "class", "tenant")
        if name is None:
            raise Unresolved("without `class`, the request lists objects of every collection")
        return await self._sources(request, [CollectionName(name, parse_tenant(tenant))])

    async def of_id(self, _request: RoutedRequest) -> Sources:
        """Raise `Unresolved` for an object that is named by its id alone, since it may be in any
        collection."""
        raise Unresolved("the request names an object by its id alone: name its collection too")

    async def of_object(self, request: RoutedRequest) -> Sources:
        """Return the collection of the object in the body, and the collection that the path
        names."""
        in_path = request.path_params[0] if request.path_params else None
        tenant = _query_tenant(request)
        names = [object_collection(request.body, in_path)]
        if in_path is not None:
            # Either tenant could be the one that counts, so both are judged.
            names += [CollectionName(in_path, each) for each in (names[0].tenant, tenant)]
        return await self._sources(request, names)

    async def of_objects(self, request: RoutedRequest) -> Sources:
        # Each object names its own collection: one batch may write to many.
        [objects] = read_members(request.body, "objects")
        if not isinstance(objects, list):
            raise Malformed("`objects` must be a list")
        request.budget.charge_parts(len(objects))
        return await self._sources(request, [object_collection(each) for each in objects])

    async def of_matches(self, request: RoutedRequest) -> Sources:
        """Return the collection from which objects are deleted by a filter, and those that the
        filter crosses into."""
        [match] = read_members(request.body, "match")
        matched = object_collection(match)
        # The tenant may be in the query or in the body: both are judged.
        names = [matched, CollectionName(matched.collection, _query_tenant(request))]
        crossed = map(CollectionName, references_in(match, request.budget))
        return await self._sources(request, [*names, *crossed])

    async def of_references(self, request: RoutedRequest) -> Sources:
        names = []
        for each in request.body:
            # `to` only stores where the reference leads; following it is a read of its own.
            start, tenant = read_members(each, "from", "tenant")
            names.append(CollectionName(beacon_collection(start), parse_tenant(tenant)))
        return await self._sources(request, names)

    async def of_tool(self, request: RoutedRequest) -> Sources:
        return await self._sources(request, collections_of_tool_call(request.body, request.budget))

    def hint_source(self, request: RoutedRequest) -> SourceRef | None:
        return self._hint(request, request.path_params[0] if request.path_params else None)

    def hint_of_object(self, request: RoutedRequest) -> SourceRef | None:
        return self._hint(request, object_collection(request.body).collection)

    def hint_of_objects(self, request: RoutedRequest) -> SourceRef | None:
        """Return the collection of the first object of a batch, or of a deletion by a filter."""
        objects, match = read_members(request.body, "objects", "match")
        first = objects[0] if isinstance(objects, list) and objects else match
        return self._hint(request, object_collection(first).collection)

    def hint_of_references(self, request: RoutedRequest) -> SourceRef | None:
        start = read_members(request.body[0], "from")[0] if request.body else None
        return self._hint(request, beacon_collection(start))

    def hint_of_tool(self, request: RoutedRequest) -> SourceRef | None:
        called = next(collections_of_tool_call(request.body, request.budget))
        return self._hint(request, called.collection)

    def _hint(self, request: RoutedRequest, named: object) -> SourceRef | None:
        try:
            name = parse_collection(named)
        except Unresolved:
            # Without a hint, the denied write is recorded for the data source as a whole.
            return None
        return self.source_names.of(self._cached_target(name, request))

    def forget_names(self) -> None:
        self._aliases.clear()
        self._definitions.clear()

    async def _sources(self, request: RoutedRequest, names: Iterable[CollectionName]) -> Sources:
        distinct: dict[CollectionName, None] = {}
        for each in names:
            distinct[CollectionName(parse_collection(each.collection), each.tenant)] = None
            # Checked before any look-up, and while `names` is still being read: it may be lazy.
            if len(distinct) > MAX_NAMES:
                raise OverBudget(f"the request names more than {MAX_NAMES} collections")
        aliases = await self._aliases.fetch(request)
        own = {
            # The list may lack aliases that the credentials may not see, but Weaviate follows them.
            name: aliases.get(name) or (await self._definitions.find(name, request)).name
            for name in dict.fromkeys(name for name, _ in distinct)
        }
        parts = ((own[name], *([] if tenant is None else [tenant])) for name, tenant in distinct)
        return tuple(dict.fromkeys(self.source_names.of(*each) for each in parts))

    def _cached_target(self, name: str, request: RoutedRequest) -> str:
        """Return the collection that `name` stands for if what is cached shows it; otherwise `name`
        itself."""
        if (target := (self._aliases.cached(request) or {}).get(name)) is not None:
            return target
        definition = self._definitions.cached(name, request)
        return name if definition is None else definition.name


def _query_tenant(request: RoutedRequest) -> str | None:
    [tenant] = read_parameters(request.target.query, "tenant")
    return parse_tenant(tenant)
