"""Builds a partial replica and its client for Redis, and lists all agents of the tenant for it.
Imported only if the setting `redis` is given: the library takes megabytes.

In Redis the nodes of the Merkle tree below the signed root name every document, so a missing agent
is detected just like a changed one. The documents of a listing are not kept: a search must not push
the documents that decisions use out of the working set.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from policies.ground.addresses import RedisUrl
from policies.ground.clock import Clock
from policies.sets.merkle_map import ROOT, NotProven, branches, buckets, entries
from policies.sets.redis_keys import document_field, node_field
from policies.sets.signed_head import Claim, SetHead
from sidecar.control.client import ControlClient
from sidecar.control.identity import Identity
from sidecar.policy_cache.feed import FeedFailed, FeedRejected, Position
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.partial_replica.control_loop import ControlLoop
from sidecar.policy_cache.partial_replica.failover import Failover
from sidecar.policy_cache.partial_replica.redis_loop import RedisLoop
from sidecar.policy_cache.partial_replica.redis_reader import RedisReader, TornRead
from sidecar.policy_cache.partial_replica.working_set import PartialState, WorkingSet
from sidecar.policy_cache.policy_store import CacheFile
from sidecar.policy_cache.policy_view import (
    AGENT_PREFIX,
    AgentDocuments,
    DocumentFetcher,
    FetchFailed,
    ListingInterrupted,
    MissingDocument,
    OwnAgentOnly,
)
from sidecar.policy_cache.replica import Follower, OnChange, Replica
from sidecar.settings.model import SidecarSettings

CHUNK = 100
"""The number of document bodies read at a time."""

REDIS_CONNECT_SECONDS = 2.0
REDIS_CONNECTIONS = 16


class FetchedAgents:
    """Lists the documents of all agents for a partial replica (`AgentDocuments`). `least` is true
    if the control API gives the sidecar only its own agent's documents, so that only Redis has the
    others."""

    def __init__(
        self, redis: RedisLoop, control: ControlLoop, working_set: WorkingSet, *, least: bool
    ) -> None:
        self._redis = redis
        self._control = control
        self._working_set = working_set
        self._least = least
        self._redis_failed = False

    async def read(self) -> AsyncGenerator[Sequence[bytes], None]:
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
            agents = (each for each in page if each.name.startswith(AGENT_PREFIX))
            yield [each.body for each in agents if each.body is not None]

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
    """Reads agents' documents from the set in Redis, by a walk down its Merkle tree. Every read
    must see the signed head of `position`: otherwise `ListingInterrupted` is raised."""

    def __init__(self, reader: RedisReader, position: Position) -> None:
        self._reader = reader
        self._position = position

    async def agents(self) -> AsyncIterator[dict[str, str]]:
        """Yield, branch by branch of the tree, the digests of the agents' documents by name."""
        head, top = await self._nodes([ROOT])
        try:
            below_root = branches(top, head.root)
            _, nodes = await self._nodes(below_root)
            for branch, digest in below_root.items():
                below_branch = buckets(nodes, branch, digest)
                _, leaves = await self._nodes(below_branch)
                found: dict[str, str] = {}
                for bucket, bucket_digest in below_branch.items():
                    found |= entries(leaves, bucket, bucket_digest)
                yield {name: d for name, d in found.items() if name.startswith(AGENT_PREFIX)}
        except NotProven as error:
            raise TornRead(str(error), ()) from error

    async def bodies(self, digests: Mapping[str, str]) -> list[bytes]:
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
        wanted = {name: node_field(name) for name in names}
        head, found = await self._fields([*wanted.values()])
        return head, {name: found[field] for name, field in wanted.items()}

    async def _fields(self, fields: Sequence[bytes]) -> tuple[SetHead, dict[bytes, bytes | None]]:
        head, found = await self._reader.fields(fields)
        if Position(head.epoch, head.revision) != self._position:
            raise ListingInterrupted(ListingInterrupted.__doc__)
        return head, found


def connect_redis(url: RedisUrl) -> Any:
    """Return a Redis client that connects on first use. Close it with `aclose`."""
    from redis.asyncio import Redis
    from redis.asyncio.cluster import ClusterNode, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    options: dict[str, Any] = {
        "username": url.username,
        "password": url.password,
        "client_name": "sluice-sidecar",
        "driver_info": None,  # sending it takes a command that our Redis user may not use
        "socket_connect_timeout": REDIS_CONNECT_SECONDS,
        "socket_keepalive": True,
        "socket_timeout": None,  # each caller sets its own time limit
        "protocol": 2,  # with 3, answers have other types: XREAD returns a dict
        "max_connections": REDIS_CONNECTIONS,
        **dict(url.options),
    }
    if url.tls:
        options["ssl"] = True
    if url.cluster:
        nodes = [ClusterNode(host, port) for host, port in url.nodes]
        return RedisCluster(startup_nodes=nodes, **options)
    ((host, port),) = url.nodes
    # No hidden retries: each caller retries by itself.
    retry = Retry(NoBackoff(), 0)
    return Redis(host=host, port=port, db=url.db, retry=retry, **options)


class PartialReplica(Replica):
    """A `Replica` that holds the documents in use, read from Redis. `client` is an asyncio client
    of redis-py."""

    def __init__(
        self,
        settings: SidecarSettings,
        connection: tuple[ControlClient, Identity],
        file: CacheFile,
        freshness: Freshness,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        client: Any,
    ) -> None:
        control, identity = connection
        self._identity = identity
        self._working_set = WorkingSet(file, identity.required)
        feed = LongPoll(control, max_delay=settings.staleness_seconds / 4)
        super().__init__(self._working_set, feed, clock)
        self._freshness, self._random_bytes = freshness, random_bytes
        self._client = client
        self._least = settings.enrol is not None
        self._follower: Failover | None = None
        self._agents: FetchedAgents | None = None

    def follow(self, on_change: OnChange, on_other_store: Callable[[], None]) -> Follower:
        of_any = self.policy_set, self._freshness, self._clock, on_change, on_other_store
        state = PartialState(*of_any, self._working_set, self._identity.required, self._blocked)
        redis = RedisLoop(state, self._connect, self._refresh_key, self._random_bytes)
        control = ControlLoop(state, self._feed, redis.sync, self._verify_origin)
        self._follower = Failover(redis, control, self._freshness, self._clock)
        self._agents = FetchedAgents(redis, control, self._working_set, least=self._least)
        return self._follower

    def document_fetcher(self) -> DocumentFetcher:
        assert self._follower is not None  # `follow` comes first
        return self._follower

    def agent_documents(self) -> AgentDocuments:
        assert self._agents is not None  # `follow` comes first
        return self._agents

    async def published_claim(self, session_id: str) -> Claim | None:
        return None if self._follower is None else await self._follower.claim(session_id)

    async def close(self) -> None:
        await self._client.aclose()

    async def _connect(self) -> RedisReader:
        """Make the reader for Redis. Only the control API can say which tenant this is and which
        key signs its log; it is asked once, and the answer is kept on disk."""
        if self._working_set.tenant_id is None or self._working_set.pin is None:
            await self._refresh_key()
        # Whose set to read must not come from Redis itself: it is not trusted.
        tenant_id = self.tenant_id()
        assert tenant_id is not None
        return RedisReader(self._client, tenant_id, self.log_keys)

    def _blocked(self) -> str | None:
        """Return the reason why this sidecar may not decide according to the documents held, such
        as a revoked key or a deactivated tenant; None if it may decide."""
        try:
            why = self._identity.invalid(self.policy_set, self._clock.now())
        except MissingDocument:
            # In doubt the sidecar does not decide. The document comes with the required ones.
            return "it is not known yet whether this sidecar's key is valid"
        if why is not None:
            return why
        try:
            active = self.policy_set.settings().active
        except MissingDocument:
            raise
        except Exception:  # noqa: BLE001  # a document of a later format can raise anything
            # Every retrieval is denied for such a document, with `evaluation_error`. The loop goes
            # on: if it ended, so would the process, and no readable document could arrive.
            active = True
        return None if active else "the tenant is deactivated"
