"""Which collections and tenants a request to Weaviate concerns. A name may be an alias; what counts
is the collection that it stands for, which Weaviate is asked for.

Knows paths, queries and bodies; knows no route.
"""

from collections.abc import Callable, Iterable

from policies.ground.errors import Malformed
from sidecar.protocols.budget import OverBudget
from sidecar.protocols.messages import RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.shared.aliases import Aliases
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_members import read_members, read_parameters
from sidecar.protocols.weaviate import mcp
from sidecar.protocols.weaviate.classes import Classes
from sidecar.protocols.weaviate.graphql import sources
from sidecar.protocols.weaviate.lists import aliases_of
from sidecar.protocols.weaviate.names import CollectionName, collection, named, of_beacon, tenant
from sidecar.protocols.weaviate.references import MOST_NAMES, referred
from sidecar.settings.model import Source

_V1 = "/v1"

# What a REST search may hold. A member of a later version may name another collection.
_SEARCH_MEMBERS = frozenset((
    "alpha", "autoLimit", "certainty", "consistencyLevel", "distance", "fusionType", "id", "limit",
    "offset", "query", "queryProperties", "returnMetadata", "returnProperties", "targetVector",
    "tenant", "vector", "where",
))  # fmt: skip


class WeaviateSources:
    """One Weaviate server, and what is known of its aliases."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        # A Weaviate from before 1.32 has no aliases.
        self._aliases = Aliases(monotonic, f"{_V1}/aliases", aliases_of, absent=(404,))
        self._classes = Classes(monotonic, f"{_V1}/schema")

    async def of_queries(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collections of a GraphQL request, or of each of a batch."""
        return await self._places(
            asked, (each for one in asked.body for each in sources(one, asked.budget))
        )

    async def of_search(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection of a REST search, and those that its filter goes through."""
        unknown = asked.body.keys() - _SEARCH_MEMBERS
        if unknown:
            raise Unresolved(f"what `{min(unknown)[:64]}` asks for is not known here")
        whose = tenant(asked.body.get("tenant"))
        names = [CollectionName(asked.path_params[0], whose)]
        for name in referred(asked.body, asked.budget):
            names += [CollectionName(name), CollectionName(name, whose)]
        return await self._places(asked, names)

    async def of_path(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection that the path names, with the tenant of the query."""
        [whose] = read_parameters(asked.target.query, "tenant")
        return await self._places(asked, [CollectionName(asked.path_params[0], tenant(whose))])

    async def of_tenant(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection and the tenant that the path names."""
        return await self._places(
            asked, [CollectionName(asked.path_params[0], tenant(asked.path_params[1]))]
        )

    async def of_listing(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection that the query names."""
        name, whose = read_parameters(asked.target.query, "class", "tenant")
        if name is None:
            raise Unresolved("without `class`, objects of every collection are asked for")
        return await self._places(asked, [CollectionName(name, tenant(whose))])

    async def of_id(self, _asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """An id alone may be of any collection."""
        raise Unresolved("an object is asked for by id alone, without its collection")

    async def of_object(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection of the object in the body, and that of the path."""
        within = asked.path_params[0] if asked.path_params else None
        [whose] = read_parameters(asked.target.query, "tenant")
        names = [named(asked.body, within)]
        if within is not None:
            names += [CollectionName(within, each) for each in (names[0].tenant, tenant(whose))]
        return await self._places(asked, names)

    async def of_objects(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection of each object of a batch."""
        [objects] = read_members(asked.body, "objects")
        if not isinstance(objects, list):
            raise Malformed("`objects` is not a list")
        asked.budget.charge_parts(len(objects))
        return await self._places(asked, [named(each) for each in objects])

    async def of_matches(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection of which objects are deleted, and those that the filter goes through."""
        [match] = read_members(asked.body, "match")
        [whose] = read_parameters(asked.target.query, "tenant")
        found = named(match)
        names = [found, CollectionName(found.collection, tenant(whose))]
        return await self._places(
            asked, [*names, *map(CollectionName, referred(match, asked.budget))]
        )

    async def of_references(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collections that hold the references of a batch."""
        names = []
        for each in asked.body:
            start, whose = read_members(each, "from", "tenant")
            names.append(CollectionName(of_beacon(start), tenant(whose)))
        return await self._places(asked, names)

    async def of_tool(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection that a tool of Weaviate's own MCP server is called for."""
        return await self._places(asked, mcp.named(asked.body, asked.budget))

    async def of_alias(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """What the alias in the path stands for."""
        return await self._places(asked, [CollectionName(asked.path_params[0])])

    def hint(self, asked: RoutedRequest) -> SourceRef | None:
        try:
            name = collection(asked.path_params[0] if asked.path_params else None)
        except Unresolved:
            return None
        return self._naming.of(self._target(name, asked))

    def names_change(self) -> None:
        self._aliases.clear()
        self._classes.clear()

    async def _places(
        self, asked: RoutedRequest, names: Iterable[CollectionName]
    ) -> tuple[SourceRef, ...]:
        read: dict[CollectionName, None] = {}
        for each in names:
            read[CollectionName(collection(each.collection), each.tenant)] = None
            if len(read) > MOST_NAMES:
                raise OverBudget(f"the request names more than {MOST_NAMES} collections")
        aliases = await self._aliases.fetch(asked)
        own = {
            name: aliases.get(name) or await self._classes.own_name(name, asked)
            for name in dict.fromkeys(name for name, _ in read)
        }
        return tuple(dict.fromkeys(self._of(own[name], whose) for name, whose in read))

    def _target(self, name: str, asked: RoutedRequest) -> str:
        """What `name` stands for, as far as that is known."""
        return (self._aliases.cached(asked) or {}).get(name, name)

    def _of(self, name: str, whose: str | None) -> SourceRef:
        return self._naming.of(name) if whose is None else self._naming.of(name, whose)
