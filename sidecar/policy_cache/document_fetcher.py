"""The port by which a document gets here that is not here yet. Knows no transport.

A sidecar that keeps its tenant's whole policy set has everything, and what it has not there is
not. One that keeps a working set has to look first; until it has, nobody may take "not here" for
"not there".
"""

from collections.abc import Iterable
from typing import Protocol


class MissingDocument(Exception):
    """a document of the policy set is not here yet"""

    def __init__(self, name: str) -> None:
        super().__init__(f"document `{name}` is not here yet")
        self.name = name


class FetchFailed(Exception):
    """the documents that a decision needs can't be had at the moment"""


class DocumentFetcher(Protocol):
    """Where documents come from that `fetch` raised `MissingDocument` for."""

    async def bring(self, names: Iterable[str]) -> None:
        """Returns once each of the names can be fetched; raises `FetchFailed`."""
        ...


class AllDocuments:
    """The supply of whoever has the whole set."""

    async def bring(self, names: Iterable[str]) -> None:
        raise FetchFailed(f"nobody brings documents here: {', '.join(names)}")
