"""Finds the collections that a Chroma request concerns, and composes lists of them. Requests
address a collection by its id; policies name it by tenant, database and name. The sidecar learns
from Chroma's own responses which collection an id stands for, and caches that for at most 30
seconds."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.request_target import encode_segment
from sidecar.protocols.chroma.filter import (
    Pages,
    Visible,
    collect_list,
    fetch_pages,
    list_window,
)
from sidecar.protocols.protocol import (
    FetchedResponse,
    Permits,
    RoutedRequest,
    SourceRef,
    Sources,
    UnknownObject,
    Unresolved,
)
from sidecar.protocols.shared.caches import DigestCache, LookupStart
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source

# The spellings of an id that Chroma accepts. `uuid.UUID` alone would accept more.
_ID = re.compile(
    r"(?:urn:uuid:|\{)?[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?"
).fullmatch


class KnownCollection(NamedTuple):
    """A collection that an id stands for: its present tenant, database and name, and its source in
    policies."""

    tenant: str
    database: str
    name: str
    source: SourceRef


class ChromaSources:
    """Finds the collections of one Chroma server, and remembers which one each id stands for."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.naming = SourceNames(source)
        # Collections by id. An id never changes, but the name of its collection may, and policies
        # apply to the name's present holder. So entries expire, and every change that the sidecar
        # forwards clears them (`protocols/RULES.md`, Precedence).
        self._collections: DigestCache[KnownCollection] = DigestCache(monotonic)

    async def by_id(self, request: RoutedRequest) -> Sources:
        return ((await self._collection(request)).source,)

    def cached_by_id(self, request: RoutedRequest) -> Sources | None:
        """Return the collection that an id in the path stands for, as `by_id` does, but only from
        the cache; otherwise None."""
        source = self.hint_by_id(request)
        return None if source is None else (source,)

    async def by_name(self, request: RoutedRequest) -> Sources:
        return (self.naming.of(*request.path_params),)

    async def by_crn(self, request: RoutedRequest) -> Sources:
        """Return the collection that a Chroma resource name, `tenant:database:collection`, stands
        for. Raises `Unresolved` for another form."""
        parts = request.path_params[0].split(":")
        if len(parts) != 3 or "" in parts:
            raise Unresolved("the resource name does not have the form tenant:database:collection")
        return (self.naming.of(*parts),)

    async def by_rename(self, request: RoutedRequest) -> Sources:
        """Return the collection that is to be renamed, and the one that its new name stands for in
        policies."""
        # Judge both: else a rename could move a collection to a name that the agent may read.
        old = await self._collection(request)
        new = request.body.get("new_name")
        if new is None:
            return (old.source,)
        # Chroma renames by id, in the collection's own database, whatever the path says.
        name = expect_name(new, "new_name")
        return old.source, self.naming.of(old.tenant, old.database, name)

    def hint_by_id(self, request: RoutedRequest) -> SourceRef | None:
        identity = _parse_id(request.path_params[2])
        known = None if identity is None else self._collections.get(identity.bytes)
        return None if known is None else known.source

    def hint_by_name(self, request: RoutedRequest) -> SourceRef | None:
        return self.naming.of(*request.path_params)

    def forget_names(self) -> None:
        self._collections.clear()

    def response_source(self, _request: RoutedRequest) -> Callable[[bytes], SourceRef | None]:
        """Return a function that finds the collection that a response body describes, and caches
        which id stands for it. It returns None if the body describes no collection."""
        # Start before the request goes out: a response that a rename overtook must not be cached.
        started = self._collections.start_lookup()

        def read(body: bytes) -> SourceRef | None:
            try:
                return self._learn(orjson.loads(body), started).source
            except (orjson.JSONDecodeError, UpstreamFailed):
                # A response about no known collection: the pipeline refuses to pass it on.
                return None

        return read

    async def list_collections(self, request: RoutedRequest, permits: Permits) -> FetchedResponse:
        start, stop = list_window(request.target.query)
        return await collect_list(self._pages(request, permits), start, stop)

    async def count_collections(self, request: RoutedRequest, permits: Permits) -> FetchedResponse:
        return await collect_list(self._pages(request, permits), 0, None, count=True)

    def _pages(self, request: RoutedRequest, permits: Permits) -> Pages:
        def begin() -> Visible:
            started = self._collections.start_lookup()
            return lambda found: permits(self._learn(found, started).source)

        return fetch_pages(request.fetch, collections_path(*request.path_params), begin)

    async def _collection(self, request: RoutedRequest) -> KnownCollection:
        tenant, database, text = request.path_params
        identity = _parse_id(text)
        if identity is None:
            raise Unresolved("the collection's id is not a UUID")
        # INVARIANT: a cached id is judged as the collection that it stands for. The tenant and
        # database in the path are not compared, because Chroma ignores them in requests by id.
        if (known := self._collections.get(identity.bytes)) is not None:
            return known
        # On this route Chroma does check tenant and database, and finds nothing if they are wrong.
        path = f"{collections_path(tenant, database)}/by-id/{identity}"
        started = self._collections.start_lookup()
        try:
            response = await request.fetch(path)
            if response.status == 200:
                found = orjson.loads(response.body)
                collection = self._learn(found, started)
                # A response about another id says nothing about this one.
                if UUID(found["id"]) == identity:
                    return collection
                raise UpstreamFailed("the data source answered about another collection")
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"collection `{identity}` can't be looked up: {error}") from error
        if response.status != 404:
            why = f"the data source answered with status {response.status}"
            raise Unresolved(f"collection `{identity}` can't be looked up: {why}")
        # In the words of Chroma, which clients look for.
        missing = f"Collection `{identity}` does not exist"
        raise UnknownObject(missing, *self.naming.below(tenant, database))

    def _learn(self, found: Any, started: LookupStart) -> KnownCollection:
        try:
            identity = UUID(found["id"])
            tenant, database, name = found["tenant"], found["database"], found["name"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = "the data source describes a collection in an unknown form"
            raise UpstreamFailed(why) from error
        if not all(isinstance(part, str) and part for part in (tenant, database, name)):
            raise UpstreamFailed("the data source describes a collection without a name")
        source = self.naming.of(tenant, database, name)
        size = len(tenant) + len(database) + len(name) + len(source.source_id)
        collection = KnownCollection(tenant, database, name, source)
        self._collections.put(identity.bytes, collection, size, started)
        return collection


def collections_path(tenant: str, database: str) -> str:
    tenant, database = encode_segment(tenant), encode_segment(database)
    return f"/api/v2/tenants/{tenant}/databases/{database}/collections"


def expect_name(value: object, field: str) -> str:
    """Return the name in the body's member `field`, given its `value`. Raises `Malformed` if it
    isn't a name."""
    if not isinstance(value, str) or not value:
        raise Malformed(f"`{field}` must be a string that is not empty")
    return value


def _parse_id(text: str) -> UUID | None:
    return UUID(text) if _ID(text) else None
