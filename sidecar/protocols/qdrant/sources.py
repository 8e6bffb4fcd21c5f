"""Which collections a request to Qdrant concerns. Each name may be an alias; what counts is the
collection that it stands for, which Qdrant is asked for. Knows paths and bodies; knows no route.
"""

from collections.abc import Callable, Iterable

from sidecar.protocols.messages import RoutedRequest, SourceRef
from sidecar.protocols.qdrant.lists import aliases_of
from sidecar.protocols.qdrant.references import collections, searches
from sidecar.protocols.shared.aliases import Aliases
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source


class QdrantSources:
    """One Qdrant server, and what is known of its aliases."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._aliases = Aliases(monotonic, "/aliases", aliases_of)

    async def of_path(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The collection that the path names."""
        return self._places(asked.path_params[:1], await self._aliases.fetch(asked))

    async def of_request(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """That, and those that the body names."""
        names = _of_request(asked)
        return self._places(names, await self._aliases.fetch(asked))

    async def of_batch(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The same of each request of a batch."""
        names = _of_batch(asked)
        return self._places(names, await self._aliases.fetch(asked))

    def known_request(self, asked: RoutedRequest) -> tuple[SourceRef, ...] | None:
        """As `of_request`, where the aliases are known."""
        aliases = self._aliases.cached(asked)
        return None if aliases is None else self._places(_of_request(asked), aliases)

    def known_batch(self, asked: RoutedRequest) -> tuple[SourceRef, ...] | None:
        """As `of_batch`, where the aliases are known."""
        aliases = self._aliases.cached(asked)
        return None if aliases is None else self._places(_of_batch(asked), aliases)

    def hint(self, asked: RoutedRequest) -> SourceRef | None:
        aliases = self._aliases.cached(asked) or {}
        return self._naming.of(aliases.get(asked.path_params[0], asked.path_params[0]))

    def names_change(self) -> None:
        self._aliases.clear()

    def _places(self, names: Iterable[str], aliases: dict[str, str]) -> tuple[SourceRef, ...]:
        return tuple(dict.fromkeys(self._naming.of(aliases.get(name, name)) for name in names))


def _of_request(asked: RoutedRequest) -> list[str]:
    return [asked.path_params[0], *collections(asked.body, asked.budget)]


def _of_batch(asked: RoutedRequest) -> list[str]:
    found = [asked.path_params[0]]
    for each in searches(asked.body):
        found += collections(each, asked.budget)
    return found
