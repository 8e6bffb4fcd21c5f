"""Fetches policy documents that are missing from the local set. Knows no transport.

A full replica has every document: what it lacks does not exist. A partial replica has to look
first; until it has, a missing document must not be taken for one that does not exist.
"""

from collections.abc import Iterable
from typing import Protocol


class MissingDocument(Exception):
    """a document of the policy set is not here yet"""

    def __init__(self, name: str) -> None:
        super().__init__(f"document `{name}` is not here yet")
        self.name = name


class FetchFailed(Exception):
    """the documents that a decision needs can't be fetched at the moment"""


class DocumentFetcher(Protocol):
    """Fetches the documents for which a local lookup raised `MissingDocument`."""

    async def fetch(self, names: Iterable[str], *, apart: bool = False) -> None:
        """Return once each of the names can be looked up locally; raises `FetchFailed`. `apart`:
        share no read with other callers, for documents that no answer needs."""
        ...


class AllDocuments:
    """The fetcher of a full replica, which is never missing a document."""

    async def fetch(self, names: Iterable[str], *, apart: bool = False) -> None:  # noqa: ARG002
        # Only a bug gets here: a full replica never raises `MissingDocument`.
        raise FetchFailed(f"a full replica fetches nothing: {', '.join(names)}")
