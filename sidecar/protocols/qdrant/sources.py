"""Finds the collections that a Qdrant request concerns. A name may be an alias, so the sidecar asks
Qdrant which collection it stands for. Knows paths and bodies; knows no routes.
"""

from collections.abc import Callable, Iterable

from sidecar.protocols.messages import RoutedRequest, SourceRef
from sidecar.protocols.qdrant.lists import parse_aliases
from sidecar.protocols.qdrant.references import collections, searches
from sidecar.protocols.route_table import Sources
from sidecar.protocols.shared.aliases import Aliases
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source


class QdrantSources:
    """One Qdrant server, and its cached aliases."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._aliases = Aliases(monotonic, "/aliases", parse_aliases)

    async def of_path(self, request: RoutedRequest) -> Sources:
        """The collection that the path names."""
        return self._sources(request.path_params[:1], await self._aliases.fetch(request))

    async def of_request(self, request: RoutedRequest) -> Sources:
        """The collections that the path and the body name."""
        names = _names_in_request(request)
        return self._sources(names, await self._aliases.fetch(request))

    async def of_batch(self, request: RoutedRequest) -> Sources:
        """The collections that the path and each request of a batch name."""
        names = _names_in_batch(request)
        return self._sources(names, await self._aliases.fetch(request))

    def cached_request(self, request: RoutedRequest) -> Sources | None:
        """As `of_request`, if the aliases are cached."""
        aliases = self._aliases.cached(request)
        return None if aliases is None else self._sources(_names_in_request(request), aliases)

    def cached_batch(self, request: RoutedRequest) -> Sources | None:
        """As `of_batch`, if the aliases are cached."""
        aliases = self._aliases.cached(request)
        return None if aliases is None else self._sources(_names_in_batch(request), aliases)

    def hint(self, request: RoutedRequest) -> SourceRef | None:
        aliases = self._aliases.cached(request) or {}
        return self._naming.of(aliases.get(request.path_params[0], request.path_params[0]))

    def forget_names(self) -> None:
        self._aliases.clear()

    def _sources(self, names: Iterable[str], aliases: dict[str, str]) -> Sources:
        return tuple(dict.fromkeys(self._naming.of(aliases.get(name, name)) for name in names))


def _names_in_request(request: RoutedRequest) -> list[str]:
    return [request.path_params[0], *collections(request.body, request.budget)]


def _names_in_batch(request: RoutedRequest) -> list[str]:
    found = [request.path_params[0]]
    for each in searches(request.body):
        found += collections(each, request.budget)
    return found
