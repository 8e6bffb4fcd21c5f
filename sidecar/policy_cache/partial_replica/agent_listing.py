"""Lists all agents of the tenant for a partial replica, which holds only those in use: from Redis,
or from the control API while Redis is away.

In Redis the nodes below the signed root name every document there is, so an agent that was left out
shows like one that was changed. What is listed is not kept: a search must not push the documents of
decisions out of the working set. Knows neither Redis commands nor HTTP.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence

from policies.sets.merkle_map import ROOT, NotProven, branches, buckets, entries
from policies.sets.redis_keys import document_field, node_field
from policies.sets.signed_head import SetHead
from sidecar.policy_cache.feed import FeedFailed, FeedRejected, Position
from sidecar.policy_cache.partial_replica.control_loop import ControlLoop
from sidecar.policy_cache.partial_replica.redis_loop import RedisLoop
from sidecar.policy_cache.partial_replica.redis_reader import RedisReader, TornRead
from sidecar.policy_cache.partial_replica.working_set import WorkingSet
from sidecar.policy_cache.policy_view import (
    AGENT_PREFIX,
    FetchFailed,
    ListingInterrupted,
    OwnAgentOnly,
)

CHUNK = 100
"""Bodies read at a time."""


class FetchedAgents:
    """The `AgentDocuments` of a partial replica. `least` is true if the control API gives the
    sidecar only its own agent's documents, so that only Redis has the others."""

    def __init__(
        self,
        redis: RedisLoop,
        control: ControlLoop,
        working_set: WorkingSet,
        *,
        least: bool = False,
    ) -> None:
        self._redis = redis
        self._control = control
        self._working_set = working_set
        self._least = least
        self._redis_failed = False

    async def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """See `AgentDocuments.read`."""
        from_redis = self._redis.healthy and not self._redis_failed
        # Only for the attempt after one that failed: Redis is asked again with the next search.
        self._redis_failed = False
        try:
            async for chunk in self._from_redis() if from_redis else self._from_control():
                yield chunk
        except (FeedFailed, FeedRejected) as error:
            if not from_redis:
                raise FetchFailed(str(error)) from error
            self._redis_failed = True
            raise ListingInterrupted(str(error)) from error

    async def _from_control(self) -> AsyncGenerator[Sequence[bytes], None]:
        if self._least:
            async for nothing in OwnAgentOnly().read():
                yield nothing
        async for page in self._control.everything():
            yield [
                document.body
                for document in page
                if document.body is not None and document.name.startswith(AGENT_PREFIX)
            ]

    async def _from_redis(self) -> AsyncGenerator[Sequence[bytes], None]:
        # Decisions have to use the same revision as the listing: go to the head first.
        await self._redis.sync.advance()
        position, reader = self._working_set.position, self._redis.sync.source
        assert reader is not None  # `advance` needs it too
        walk = _Walk(reader, position)
        async for digests in walk.agents():
            names = list(digests)
            # At least one part for each branch, so that the reader of a large set can rest.
            for at in range(0, max(1, len(names)), CHUNK):
                yield await walk.bodies({name: digests[name] for name in names[at : at + CHUNK]})
                if self._working_set.position != position:
                    raise ListingInterrupted(ListingInterrupted.__doc__)


class _Walk:
    """Reads nodes and documents of the set in Redis, all under the head at `position`."""

    def __init__(self, reader: RedisReader, position: Position) -> None:
        self._reader = reader
        self._position = position

    async def agents(self) -> AsyncIterator[dict[str, str]]:
        """Yield the digests of the agents' documents, by name, for each branch."""
        head, top = await self._nodes([ROOT])
        try:
            below_root = branches(top, head.root)
            _, nodes = await self._nodes(below_root)
            for branch, digest in below_root.items():
                below_branch = buckets(nodes, branch, digest)
                _, leaves = await self._nodes(below_branch)
                yield _agents(leaves, below_branch)
        except NotProven as error:
            raise TornRead(str(error), ()) from error

    async def bodies(self, digests: Mapping[str, str]) -> list[bytes]:
        """Return the documents with these names and digests."""
        if not digests:
            return []
        _, found = await self._fields([document_field(name) for name in digests])
        bodies = []
        for name, digest in digests.items():
            body = found[document_field(name)]
            if body is None or hashlib.sha256(body).hexdigest() != digest:
                raise TornRead(f"document `{name}` does not match the digest that was signed", ())
            bodies.append(body)
        return bodies

    async def _nodes(self, names: Iterable[str]) -> tuple[SetHead, dict[str, bytes | None]]:
        asked = list(names)
        head, found = await self._fields([node_field(name) for name in asked])
        return head, {name: found[node_field(name)] for name in asked}

    async def _fields(self, fields: Sequence[bytes]) -> tuple[SetHead, dict[bytes, bytes | None]]:
        head, found = await self._reader.fields(fields)
        if Position(head.epoch, head.revision) != self._position:
            raise ListingInterrupted(ListingInterrupted.__doc__)
        return head, found


def _agents(leaves: Mapping[str, bytes | None], digests: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for bucket, digest in digests.items():
        documents = entries(leaves, bucket, digest).items()
        found |= {name: each for name, each in documents if name.startswith(AGENT_PREFIX)}
    return found
