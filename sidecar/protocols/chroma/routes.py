"""Chroma's HTTP API, version 2 (data-sources.md 5.1, seen in chromadb 1.5.9).

A collection is read by its id; policies know it by tenant, database and name. Chroma does not look
at the tenant and database in the path of a request by id, and neither does this: what counts is
the collection that the id stands for, learnt from Chroma's own answers. `collections/{name}` takes
a name where its siblings take an id.

The table at the end holds every route that Chroma has. Knows Chroma; judges nothing.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.http.request_target import Target
from sidecar.protocols.chroma import creation as chroma_creation
from sidecar.protocols.chroma import filter as chroma_documents
from sidecar.protocols.chroma.names import collections_path, identity_of, name_of
from sidecar.protocols.messages import (
    FetchedResponse,
    Permits,
    RoutedRequest,
    SourceRef,
    Unresolved,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch, RouteTable
from sidecar.protocols.shared import filtered_list as listing
from sidecar.protocols.shared.digest_cache import LookupStart
from sidecar.protocols.shared.id_cache import CollectionCache, KnownCollection
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import json_object
from sidecar.settings.model import Source


class Chroma(SourceProtocol):
    """One Chroma server, and what is known of its collections."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.naming = SourceNames(source)
        self._collections = CollectionCache(monotonic)
        self._writes = source.writes == "allow"

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return _TABLE.match(method, target)

    async def by_id(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection that the id in the path stands for."""
        return ((await self._collection(asked)).source,)

    def known_by_id(self, asked: RoutedRequest) -> tuple[SourceRef, ...] | None:
        """As `by_id`, where the id is known."""
        place = self.hint_by_id(asked)
        return None if place is None else (place,)

    async def by_name(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection that the path names."""
        return (self.naming.of(*asked.path_params),)

    async def by_crn(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection of a resource name, `tenant:database:collection`."""
        parts = asked.path_params[0].split(":")
        if len(parts) != 3 or "" in parts:
            raise Unresolved("the resource name does not have the form tenant:database:collection")
        return (self.naming.of(*parts),)

    def creating(self, asked: RoutedRequest) -> ProtocolRoute:
        """The row of a creation. Where writes are denied, get-or-create (what LangChain sends for
        every collection that it opens) is a look-up by name of a collection that is there."""
        found = not self._writes and asked.body.get("get_or_create") is True
        return _GET_OR_CREATE if found else _CREATE

    async def renamed(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection, and the name that it gets: else a rename would move a collection to
        where a policy lets it be read."""
        assert asked.body is not None
        old = await self._collection(asked)
        new = asked.body.get("new_name")
        if new is None:
            return (old.source,)
        name = name_of(new, "new_name")
        return old.source, self.naming.of(old.tenant, old.database, name)

    def hint_by_id(self, asked: RoutedRequest) -> SourceRef | None:
        identity = identity_of(asked.path_params[2])
        known = None if identity is None else self._collections.get(identity)
        return None if known is None else known.source

    def hint_by_name(self, asked: RoutedRequest) -> SourceRef | None:
        return self.naming.of(*asked.path_params)

    def names_change(self) -> None:
        self._collections.clear()

    def shown(self, _asked: RoutedRequest) -> Callable[[bytes], SourceRef | None]:
        """The collection that an answer tells of; its id is known from then on."""
        moment = self._collections.start_lookup()

        def read(answer: bytes) -> SourceRef | None:
            try:
                return self._learn(orjson.loads(answer), moment).source
            except (orjson.JSONDecodeError, UpstreamFailed):
                return None

        return read

    async def listed(self, asked: RoutedRequest, permits: Permits) -> FetchedResponse:
        """The collections that may be seen."""
        start, stop = listing.window(asked.target.query)
        return await listing.collect(self._pages(asked, permits), start, stop)

    async def counted(self, asked: RoutedRequest, permits: Permits) -> FetchedResponse:
        """How many collections may be seen."""
        return await listing.count(self._pages(asked, permits))

    def _pages(self, asked: RoutedRequest, permits: Permits) -> listing.Pages:
        def begin() -> listing.Visible:
            moment = self._collections.start_lookup()
            return lambda found: permits(self._learn(found, moment).source)

        return listing.fetch_pages(asked.fetch, collections_path(*asked.path_params), begin)

    async def _collection(self, asked: RoutedRequest) -> KnownCollection:
        tenant, database, text = asked.path_params
        identity = identity_of(text)
        if identity is None:
            raise Unresolved("the collection's id is not a UUID")
        known = self._collections.get(identity)
        if known is not None:
            return known
        # Chroma looks at tenant and database here: a path that states others finds nothing.
        path = f"{collections_path(tenant, database)}/by-id/{identity}"
        moment = self._collections.start_lookup()
        try:
            answer = await asked.fetch(path)
            if answer.status == 200:
                found = orjson.loads(answer.body)
                collection = self._learn(found, moment)
                if UUID(found["id"]) == identity:
                    return collection
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"collection `{identity}` can't be looked up: {error}") from error
        raise Unresolved(f"collection `{identity}` is not known to the data source")

    def _learn(self, found: Any, moment: LookupStart) -> KnownCollection:
        try:
            identity = UUID(found["id"])
            tenant, database, name = found["tenant"], found["database"], found["name"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UpstreamFailed(
                "the data source describes a collection in a way unknown"
            ) from error
        if not all(isinstance(part, str) and part for part in (tenant, database, name)):
            raise UpstreamFailed("the data source describes a collection without a name")
        collection = KnownCollection(tenant, database, name, self.naming.of(tenant, database, name))
        self._collections.put(identity, collection, moment)
        return collection


_API = "/api/v2"
_DB = f"{_API}/tenants/{{tenant}}/databases/{{database}}"
_NAMES = f"{_DB}/collections"
_ONE = f"{_NAMES}/{{id}}"

_RETRIEVE, _RESOLVE, _METADATA = RouteClass.RETRIEVE, RouteClass.RESOLVE, RouteClass.METADATA
_WRITE, _BULK, _ADMIN, _OPEN = RouteClass.WRITE, RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_READ = "GET HEAD"
_by_id, _by_name, _hint = Chroma.by_id, Chroma.by_name, Chroma.hint_by_id
_known = Chroma.known_by_id
_shown, _change = Chroma.shown, Chroma.names_change

# INVARIANT: a literal segment stands above a `{parameter}` in its place, as in Chroma's own router.
# What is not here is denied as `unclassified_route`: a newer Chroma opens nothing by itself.
ROUTES = (
    ProtocolRoute(
        "POST",
        f"{_ONE}/query",
        _RETRIEVE,
        _by_id,
        parse_body=json_object,
        plan_forward=chroma_documents.of_query,
        filters_documents=True,
        find_sources_now=_known,
    ),
    ProtocolRoute(
        "POST",
        f"{_ONE}/get",
        _RETRIEVE,
        _by_id,
        parse_body=json_object,
        plan_forward=chroma_documents.of_get,
        filters_documents=True,
        find_sources_now=_known,
    ),
    ProtocolRoute(
        "POST", f"{_ONE}/search", _RETRIEVE, _by_id, parse_body=json_object, find_sources_now=_known
    ),
    ProtocolRoute(_READ, f"{_NAMES}/by-id/{{id}}", _RESOLVE, _by_id, response_source=_shown),
    # Not an id: Chroma's description says `collection_id` here and means the name.
    ProtocolRoute(_READ, f"{_NAMES}/{{name}}", _RESOLVE, _by_name, response_source=_shown),
    ProtocolRoute(
        _READ, f"{_API}/collections/{{crn}}", _RESOLVE, Chroma.by_crn, response_source=_shown
    ),
    ProtocolRoute(_READ, _NAMES, _METADATA, compose_response=Chroma.listed),
    ProtocolRoute(_READ, f"{_NAMES}_count", _METADATA, compose_response=Chroma.counted),
    ProtocolRoute(_READ, f"{_ONE}/count", _METADATA, _by_id, find_sources_now=_known),
    ProtocolRoute(_READ, f"{_ONE}/indexing_status", _METADATA, _by_id),
    ProtocolRoute(_READ, f"{_ONE}/fork_count", _METADATA, _by_id),
    ProtocolRoute("POST", f"{_ONE}/add", _WRITE, _by_id, _hint),
    ProtocolRoute("POST", f"{_ONE}/update", _WRITE, _by_id, _hint),
    ProtocolRoute("POST", f"{_ONE}/upsert", _WRITE, _by_id, _hint),
    ProtocolRoute("POST", f"{_ONE}/delete", _WRITE, _by_id, _hint),
    # What it is stands in the body: a write, or the look-up of a collection that is there.
    ProtocolRoute("POST", _NAMES, _RESOLVE, parse_body=json_object, refine=Chroma.creating),
    ProtocolRoute(
        "PUT",
        _ONE,
        _WRITE,
        Chroma.renamed,
        _hint,
        parse_body=json_object,
        before_forward=_change,
        after_forward=_change,
    ),
    # Not an id either.
    ProtocolRoute(
        "DELETE",
        f"{_NAMES}/{{name}}",
        _WRITE,
        _by_name,
        Chroma.hint_by_name,
        before_forward=_change,
        after_forward=_change,
    ),
    # A copy is a collection of its own, and a function writes into another: what is read from
    # there would be judged by another name.
    ProtocolRoute("POST", f"{_ONE}/fork", _BULK),
    ProtocolRoute("POST", f"{_ONE}/functions/attach", _BULK),
    ProtocolRoute(_READ, f"{_ONE}/functions/{{function}}", _BULK),
    ProtocolRoute("POST", f"{_ONE}/attached_functions/{{function}}/detach", _BULK),
    ProtocolRoute("POST", f"{_API}/reset", _ADMIN),
    ProtocolRoute("POST", f"{_API}/tenants", _ADMIN),
    # Gives a tenant the name that resource names begin with.
    ProtocolRoute("PATCH", f"{_API}/tenants/{{tenant}}", _ADMIN),
    ProtocolRoute(f"{_READ} POST", f"{_API}/tenants/{{tenant}}/databases", _ADMIN),
    ProtocolRoute("DELETE", _DB, _ADMIN),
    ProtocolRoute(_READ, _API, _OPEN),
    ProtocolRoute(_READ, f"{_API}/heartbeat", _OPEN),
    ProtocolRoute(_READ, f"{_API}/healthcheck", _OPEN),
    ProtocolRoute(_READ, f"{_API}/version", _OPEN),
    ProtocolRoute(_READ, f"{_API}/pre-flight-checks", _OPEN),
    ProtocolRoute(_READ, f"{_API}/auth/identity", _OPEN),
    ProtocolRoute(_READ, f"{_API}/tenants/{{tenant}}", _OPEN),
    ProtocolRoute(_READ, _DB, _OPEN),
)

_CREATE = ProtocolRoute(
    "POST",
    _NAMES,
    _WRITE,
    chroma_creation.created,
    chroma_creation.hint,
    parse_body=json_object,
    response_source=_shown,
    before_forward=_change,
)
_GET_OR_CREATE = ProtocolRoute(
    "POST",
    _NAMES,
    _RESOLVE,
    hint_source=chroma_creation.hint,
    parse_body=json_object,
    find_visible_sources=chroma_creation.opened,
    replacement_target=chroma_creation.lookup_target,
    response_source=_shown,
)

_TABLE = RouteTable(ROUTES)
