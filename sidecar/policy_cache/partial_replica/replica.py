"""Builds a partial replica, and the client for the Redis that it reads from: the documents in use,
from Redis, or from the control API while Redis is away. Imported only if `redis` is set: the
library takes megabytes.
"""

from collections.abc import Callable
from typing import Any

from policies.ground.clock import Clock
from policies.ground.redis_url import RedisUrl
from policies.sets.signed_head import Claim
from sidecar.control.client import ControlClient
from sidecar.control.identity import Identity
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.partial_replica.agent_listing import FetchedAgents
from sidecar.policy_cache.partial_replica.control_loop import ControlLoop
from sidecar.policy_cache.partial_replica.failover import Failover
from sidecar.policy_cache.partial_replica.redis_loop import RedisLoop
from sidecar.policy_cache.partial_replica.redis_reader import RedisReader
from sidecar.policy_cache.partial_replica.working_set import PartialState, WorkingSet
from sidecar.policy_cache.policy_view import AgentDocuments, DocumentFetcher, MissingDocument
from sidecar.policy_cache.replica import Follower, OnChange, Replica
from sidecar.settings.model import SidecarSettings

REDIS_CONNECT_SECONDS = 2.0
REDIS_CONNECTIONS = 16


def connect_redis(url: RedisUrl) -> Any:
    """Return a client that connects on first use; close it with `aclose`."""
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
    """A `Replica` of the documents in use. `client` is an asyncio client of redis-py."""

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
        state = PartialState(
            self.policy_set,
            self._freshness,
            self._clock,
            on_change,
            on_other_store,
            self._working_set,
            self._identity.required,
            self._blocked,
        )
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
        """Make the reader. Only the control API can say which tenant this is and who signs its log;
        it is asked once, and the answer is kept on disk."""
        if self._working_set.tenant_id is None or self._working_set.pin is None:
            await self._refresh_key()
        # Whose set to read must not come from Redis itself: it is not trusted.
        tenant_id = self.tenant_id()
        assert tenant_id is not None
        return RedisReader(self._client, tenant_id, self.log_keys)

    def _blocked(self) -> str | None:
        """Return why, according to the documents held, this sidecar may not decide, such as a
        revoked key or a deactivated tenant; None if it may."""
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
