"""Reads the documents of all agents, for a search over them. Knows no transport.

A decision reads the documents that it names. A search has to know that it saw them all: either the
listing is whole, as of one revision of the policy set, or it fails.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from sidecar.policy_cache.document_fetcher import FetchFailed

AGENT_PREFIX = "agent/"


class ListingInterrupted(Exception):
    """the policy set, or where it is read from, changed during a listing: begin again"""


class AgentDocuments(Protocol):
    """`FetchFailed` and `CacheDamaged` mean that there is no whole listing at the moment."""

    def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """The bodies, in parts, each of them read in a fraction of a millisecond and perhaps empty.
        All are of the revision that is in force when the last part arrives. Raises
        `ListingInterrupted`, `FetchFailed` and `CacheDamaged`."""
        ...


class OwnAgentOnly:
    """The `AgentDocuments` of a replica that is given its own agent's documents alone: no listing
    of it is whole."""

    async def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Raises `FetchFailed`."""
        whole: Sequence[Sequence[bytes]] = ()
        for part in whole:
            yield part
        raise FetchFailed(
            "this sidecar enrols, so it is given the documents of its own agent alone; ask a "
            "sidecar with a key of its own (`key_file`), or `GET /v1/policies/access` of the "
            "control API"
        )
