"""Finds the collections and tenants that a call of Weaviate's gRPC API concerns: what its message
names, and what references in it lead to. Which fields name something is marked in
`grpc_schema.py`.

A reference is often named by its property alone. The collection that it leads to is then in the
definition of the collection that has the property, and is looked up there.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from sidecar.http.grpc.protobuf import Values
from sidecar.protocols.protocol import RoutedRequest, SourceRef, Sources, Unresolved
from sidecar.protocols.weaviate.names import (
    CollectionName,
    References,
    parse_collection,
    parse_tenant,
)
from sidecar.protocols.weaviate.sources import WeaviateSources


class _Step(NamedTuple):
    """A part of a message from which references lead on, and the collection that they start in."""

    collection: str
    kind: str
    """The name of the part's message in the schema."""
    values: Values


class GrpcSources(WeaviateSources):
    async def of_grpc_search(self, request: RoutedRequest) -> Sources:
        """Return the sources of a search, of an aggregation, or of a deletion by a filter."""
        values = request.body.values
        own = _named(values, "collection")
        names = [own]
        for name in await self._referred(own.collection, values, request):
            # The other collection may have the same tenants, or none: both are judged.
            names += [CollectionName(name), CollectionName(name, own.tenant)]
        return await self._sources(request, names)

    async def of_grpc_tenants(self, request: RoutedRequest) -> Sources:
        """Return the tenants that are asked for, or the collection if its tenants are listed."""
        values = request.body.values
        tenants = values.get("names", {}).get("values", [])
        request.budget.charge_parts(len(tenants))
        name = values.get("collection")
        named = [CollectionName(name, parse_tenant(each)) for each in tenants]
        return await self._sources(request, named or [CollectionName(name)])

    async def of_grpc_objects(self, request: RoutedRequest) -> Sources:
        # Each object names its own collection: one batch may write to many.
        objects = request.body.values.get("objects", [])
        request.budget.charge_parts(len(objects))
        return await self._sources(request, _written(objects))

    async def of_grpc_references(self, request: RoutedRequest) -> Sources:
        references = request.body.values.get("references", [])
        request.budget.charge_parts(len(references))
        return await self._sources(request, _written_references(references))

    def hint_of_grpc(self, request: RoutedRequest) -> SourceRef | None:
        """Return the collection of a deletion, or of the first object or reference of a batch."""
        values = request.body.values
        first = next(iter(values.get("objects", values.get("references", ()))), values)
        return self._hint(request, first.get("collection", first.get("from_collection")))

    async def of_grpc_stream(self, request: RoutedRequest) -> Sources:
        """Return the sources that one message of a stream of writes names, perhaps none."""
        data = request.body.values.get("data", {})
        objects = data.get("objects", {}).get("values", [])
        references = data.get("references", {}).get("values", [])
        request.budget.charge_parts(len(objects) + len(references))
        names = chain(_written(objects), _written_references(references))
        return await self._sources(request, names)

    async def _referred(self, start: str, values: Values, request: RoutedRequest) -> list[str]:
        """Return the collections to which references in a message lead, each once. Raises
        `Unresolved`."""
        references = References(request.budget)
        found: dict[str, None] = {}
        for path in _paths(values):
            found.update(dict.fromkeys(references.in_path(path)))
        if grouped := values.get("group_by", {}).get("collection"):
            found[parse_collection(grouped)] = None
        pending = list(_first_steps(start, values))
        while pending:
            # The caller chooses how many there are.
            request.budget.charge_arguments(1)
            collection, kind, part = pending.pop()
            if kind == "PropertiesRequest":
                for each in part.get("ref_properties", []):
                    named = each.get("target_collection")
                    at = each.get("reference_property")
                    target = await self._target(collection, at, request, named)
                    found[target] = None
                    if named is not None:
                        found[parse_collection(named)] = None
                    pending += _steps(target, kind, each.get("properties"))
            elif kind == "Filters":
                found.update(dict.fromkeys(references.in_path(part.get("on"))))
                for each in part.get("filters", []):
                    pending += _steps(collection, kind, each)
                pending += _steps(collection, "FilterTarget", part.get("target"))
            elif (single := part.get("single_target")) is not None:
                target = await self._target(collection, single.get("on"), request)
                found[target] = None
                pending += _steps(target, kind, single.get("target"))
            elif (multi := part.get("multi_target")) is not None:
                target = parse_collection(multi.get("target_collection"))
                found[target] = None
                pending += _steps(target, kind, multi.get("target"))
        return list(found)

    async def _target(
        self,
        collection: str,
        property_name: str | None,
        request: RoutedRequest,
        named: str | None = None,
    ) -> str:
        """Return the collection to which Weaviate follows a property of `collection`: `named`, only
        if the property leads to several. Raises `Unresolved` if it leads nowhere, or to several
        without a name."""
        # Weaviate writes the first letter of a property in lower case, and so does its reader.
        name = property_name or ""
        name = name[:1].lower() + name[1:]
        aliases = await self._aliases.fetch(request)
        definition = await self._definitions.find(aliases.get(collection, collection), request)
        leads = definition.references.get(name, ())
        if not leads:
            raise Unresolved(f"`{name[:64]}` is no reference of the collection `{collection}`")
        if len(leads) > 1 and named is None:
            raise Unresolved(f"`{name[:64]}` leads to several collections: name one")
        return parse_collection(named if len(leads) > 1 else leads[0])


def _named(values: Values, member: str) -> CollectionName:
    return CollectionName(parse_collection(values.get(member)), parse_tenant(values.get("tenant")))


def _paths(values: Values) -> Iterator[list[str]]:
    """Yield the paths in a search that aren't in a filter: of its order, and of its groups."""
    for each in (*values.get("sort_by", []), values.get("group_by", {})):
        if path := each.get("path"):
            yield path


def _first_steps(start: str, values: Values) -> Iterator[_Step]:
    yield from _steps(start, "PropertiesRequest", values.get("properties"))
    yield from _steps(start, "Filters", values.get("filters"))
    for each in values.get("boost", {}).get("conditions", []):
        yield from _steps(start, "Filters", each.get("filter"))


def _steps(collection: str, kind: str, values: Values | None) -> list[_Step]:
    return [] if values is None else [_Step(collection, kind, values)]


def _written(objects: Iterable[Values]) -> Iterator[CollectionName]:
    for each in objects:
        own = _named(each, "collection")
        yield own
        for reference in each.get("properties", {}).get("multi_target_ref_props", []):
            yield from _both(reference.get("target_collection"), own.tenant)


def _written_references(references: Iterable[Values]) -> Iterator[CollectionName]:
    for each in references:
        own = _named(each, "from_collection")
        yield own
        if "to_collection" in each:
            yield from _both(each["to_collection"], own.tenant)


def _both(name: object, tenant: str | None) -> Iterator[CollectionName]:
    collection = parse_collection(name)
    yield CollectionName(collection)
    yield CollectionName(collection, tenant)
