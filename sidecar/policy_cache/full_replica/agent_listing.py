"""Lists the agents of a full replica, which holds them all. Knows no search."""

from collections.abc import AsyncGenerator, Sequence

from sidecar.policy_cache.agent_documents import AGENT_PREFIX, ListingInterrupted
from sidecar.policy_cache.full_replica.store import FullStore

CHUNK = 50
"""Documents read at a time: reading runs on the event loop, so decisions wait for it."""
_END = AGENT_PREFIX[:-1] + chr(ord(AGENT_PREFIX[-1]) + 1)


class StoredAgents:
    """The `AgentDocuments` of a store."""

    def __init__(self, store: FullStore) -> None:
        self._store = store

    async def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """See `AgentDocuments.read`."""
        position, after = self._store.position, AGENT_PREFIX
        while True:
            chunk = self._store.list_documents(after, _END, CHUNK)
            yield [body for _, body in chunk]
            if self._store.position != position:
                raise ListingInterrupted(ListingInterrupted.__doc__)
            if len(chunk) < CHUNK:
                return
            after = chunk[-1][0]
