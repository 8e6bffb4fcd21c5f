"""Finds the collections that a Qdrant request concerns. A name may be an alias, so the sidecar asks
Qdrant which collection it stands for. Knows paths and bodies; knows no routes.
"""

from collections.abc import Callable, Iterable

from sidecar.protocols.messages import RoutedRequest, SourceRef
from sidecar.protocols.qdrant.lists import parse_aliases
from sidecar.protocols.qdrant.references import collections, requests_of
from sidecar.protocols.route_table import Sources
from sidecar.protocols.shared.aliases import Aliases
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source


class QdrantSources:
    """One Qdrant server, and its cached aliases."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.source_names = SourceNames(source)
        self._aliases = Aliases(monotonic, "/aliases", parse_aliases)

    async def of_path(self, request: RoutedRequest) -> Sources:
        """The collection that the path names."""
        # The path's second parameter is a point, a field or a vector.
        return self._sources(request.path_params[:1], await self._aliases.fetch(request))

    async def of_body(self, request: RoutedRequest) -> Sources:
        """The collections that the path and the body name."""
        # Read the body before the look-up: a malformed one then costs Qdrant no request.
        names = _names(request)
        return self._sources(names, await self._aliases.fetch(request))

    def of_body_now(self, request: RoutedRequest) -> Sources | None:
        """Like `of_body`, but None unless the aliases are cached."""
        aliases = self._aliases.cached(request)
        return None if aliases is None else self._sources(_names(request), aliases)

    def hint(self, request: RoutedRequest) -> SourceRef | None:
        # A denied write is worth no look-up: without the aliases it is recorded under its own name.
        aliases = self._aliases.cached(request) or {}
        return self.source_names.of(aliases.get(request.path_params[0], request.path_params[0]))

    def forget_names(self) -> None:
        self._aliases.clear()

    def _sources(self, names: Iterable[str], aliases: dict[str, str]) -> Sources:
        # A name that is not an alias is a collection, whether it exists or not.
        found = (self.source_names.of(aliases.get(name, name)) for name in names)
        return tuple(dict.fromkeys(found))


def _names(request: RoutedRequest) -> list[str]:
    # A batch has a single decision, so collect the names of all its requests.
    names = [request.path_params[0]]
    for each in requests_of(request):
        names += collections(each, request.budget)
    return names
