"""Finds the collections that a Chroma request concerns, and composes the lists of collections that
an agent may see.

Requests address a collection by its id; policies name it by tenant, database and name. The id's
collection is learnt from Chroma's own responses: Chroma ignores the tenant and database in the path
of a request by id, so this must not trust them either. Knows no routes.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.chroma.names import collections_path, expect_name, parse_id
from sidecar.protocols.messages import (
    FetchedResponse,
    Permits,
    RoutedRequest,
    SourceRef,
    Unresolved,
)
from sidecar.protocols.route_table import Sources
from sidecar.protocols.shared import filtered_list
from sidecar.protocols.shared.digest_cache import LookupStart
from sidecar.protocols.shared.id_cache import CollectionCache, KnownCollection
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source


class ChromaSources:
    """One Chroma server, and which collections its ids stand for."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.naming = SourceNames(source)
        self._collections = CollectionCache(monotonic)

    async def by_id(self, request: RoutedRequest) -> Sources:
        """The collection whose id is in the path."""
        return ((await self._collection(request)).source,)

    def cached_by_id(self, request: RoutedRequest) -> Sources | None:
        """As `by_id`, if the id is cached."""
        source = self.hint_by_id(request)
        return None if source is None else (source,)

    async def by_name(self, request: RoutedRequest) -> Sources:
        """The collection that the path names."""
        return (self.naming.of(*request.path_params),)

    async def by_crn(self, request: RoutedRequest) -> Sources:
        """The collection of a Chroma resource name, `tenant:database:collection`."""
        parts = request.path_params[0].split(":")
        if len(parts) != 3 or "" in parts:
            raise Unresolved("the resource name does not have the form tenant:database:collection")
        return (self.naming.of(*parts),)

    async def by_rename(self, request: RoutedRequest) -> Sources:
        """The collection, and the one of its new name: otherwise a rename could move a collection
        to a name that a policy lets the agent read."""
        assert request.body is not None
        old = await self._collection(request)
        new = request.body.get("new_name")
        if new is None:
            return (old.source,)
        name = expect_name(new, "new_name")
        return old.source, self.naming.of(old.tenant, old.database, name)

    def hint_by_id(self, request: RoutedRequest) -> SourceRef | None:
        identity = parse_id(request.path_params[2])
        known = None if identity is None else self._collections.get(identity)
        return None if known is None else known.source

    def hint_by_name(self, request: RoutedRequest) -> SourceRef | None:
        return self.naming.of(*request.path_params)

    def forget_names(self) -> None:
        self._collections.clear()

    def response_source(self, _request: RoutedRequest) -> Callable[[bytes], SourceRef | None]:
        """Reads the collection that a response describes, and remembers its id."""
        # Taken before the request goes out: a response that a rename overtook must not be cached.
        started = self._collections.start_lookup()

        def read(body: bytes) -> SourceRef | None:
            try:
                return self._learn(orjson.loads(body), started).source
            except (orjson.JSONDecodeError, UpstreamFailed):
                return None

        return read

    async def list_collections(self, request: RoutedRequest, permits: Permits) -> FetchedResponse:
        """The collections that may be seen."""
        start, stop = filtered_list.window(request.target.query)
        return await filtered_list.collect(self._pages(request, permits), start, stop)

    async def count_collections(self, request: RoutedRequest, permits: Permits) -> FetchedResponse:
        """How many collections may be seen."""
        return await filtered_list.count(self._pages(request, permits))

    def _pages(self, request: RoutedRequest, permits: Permits) -> filtered_list.Pages:
        def begin() -> filtered_list.Visible:
            started = self._collections.start_lookup()
            return lambda found: permits(self._learn(found, started).source)

        return filtered_list.fetch_pages(
            request.fetch, collections_path(*request.path_params), begin
        )

    async def _collection(self, request: RoutedRequest) -> KnownCollection:
        tenant, database, text = request.path_params
        identity = parse_id(text)
        if identity is None:
            raise Unresolved("the collection's id is not a UUID")
        known = self._collections.get(identity)
        if known is not None:
            return known
        # This route does check tenant and database: with the wrong ones, Chroma finds nothing.
        path = f"{collections_path(tenant, database)}/by-id/{identity}"
        started = self._collections.start_lookup()
        try:
            response = await request.fetch(path)
            if response.status == 200:
                found = orjson.loads(response.body)
                collection = self._learn(found, started)
                if UUID(found["id"]) == identity:
                    return collection
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"collection `{identity}` can't be looked up: {error}") from error
        raise Unresolved(f"the data source has no collection `{identity}`")

    def _learn(self, found: Any, started: LookupStart) -> KnownCollection:
        try:
            identity = UUID(found["id"])
            tenant, database, name = found["tenant"], found["database"], found["name"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UpstreamFailed(
                "the data source describes a collection in an unknown form"
            ) from error
        if not all(isinstance(part, str) and part for part in (tenant, database, name)):
            raise UpstreamFailed("the data source describes a collection without a name")
        collection = KnownCollection(tenant, database, name, self.naming.of(tenant, database, name))
        self._collections.put(identity, collection, started)
        return collection
