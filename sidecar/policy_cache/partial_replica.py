"""A working set of the policy set as a copy of it, by way of Redis, or of the control API while
Redis is away. Loaded only where a Redis is set: the library for it takes megabytes. Knows what it
is made of, and by which key it is believed.
"""

from collections.abc import Callable
from typing import Any

from policies.ground.clock import Clock
from policies.ground.keys import key_digest
from policies.sets.policy_set import TENANT, PolicySet, agent_name, key_name, role_name
from policies.sets.signed_head import Claim
from sidecar.control.client import ControlClient
from sidecar.platform.key_file import read_key
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.control_follow import ControlFollower
from sidecar.policy_cache.document_fetcher import DocumentFetcher, MissingDocument
from sidecar.policy_cache.failover import Failover
from sidecar.policy_cache.feed import FeedPage
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.key_pin import NotEndorsed, pinned
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.poll_loop import FeedRejected
from sidecar.policy_cache.redis_loop import RedisLoop
from sidecar.policy_cache.redis_reader import RedisReader
from sidecar.policy_cache.replica import Changed, Following
from sidecar.policy_cache.working_set import WorkingSet
from sidecar.settings.model import SidecarSettings


class PartialReplica:
    """What is looked at, by way of Redis or of the control API."""

    def __init__(
        self,
        settings: SidecarSettings,
        centre: ControlClient,
        file: CacheFile,
        freshness: Freshness,
        clock: Clock,
        entropy: Callable[[int], bytes],
        client: Any,
    ) -> None:
        self._own_key = key_digest(read_key(settings.key_file))
        self._kept = _kept(settings, self._own_key)
        self._held = WorkingSet(file, self._kept)
        self._feed = LongPoll(centre, patience=settings.staleness_seconds / 4)
        self._freshness, self._clock, self._entropy = freshness, clock, entropy
        self._client = client
        self._follower: Failover | None = None
        self.policy_set = PolicySet(self._held.fetch)

    def fetch(self, name: str) -> bytes | None:
        return self._held.fetch(name)

    def follow(self, on_change: Changed, on_other_store: Callable[[], None]) -> Following:
        redis = RedisLoop(
            self._meet,
            self._ask_key,
            self._held,
            self.policy_set,
            self._freshness,
            self._clock,
            self._entropy,
            self._kept,
            self._barred,
            on_change,
            on_other_store,
        )
        control = ControlFollower(
            self._feed,
            self._held,
            redis.catch_up,
            self._freshness,
            self._clock,
            self._kept,
            self._believe,
            self._barred,
        )
        self._follower = Failover(redis, control, self._freshness, self._clock)
        return self._follower

    def supply(self) -> DocumentFetcher:
        assert self._follower is not None  # `follow` comes first
        return self._follower

    async def told(self, session_id: str) -> Claim | None:
        return None if self._follower is None else await self._follower.claim(session_id)

    def epoch(self) -> str:
        return self._held.position.epoch

    def tenant_id(self) -> str | None:
        return self._held.tenant_id

    def log_keys(self) -> tuple[bytes, ...]:
        pin = self._held.pin
        return () if pin is None else pin.believed(self._clock.now())

    async def close(self) -> None:
        await self._client.aclose()

    async def _meet(self) -> RedisReader:
        """Whose policy set it is, and who signs it, is for the control API to say: once, then it
        stands on disk."""
        if self._held.tenant_id is None or self._held.pin is None:
            await self._ask_key()
        tenant_id = self.tenant_id()
        assert tenant_id is not None
        return RedisReader(self._client, tenant_id, self.log_keys)

    async def _ask_key(self) -> None:
        """Who signs, as the control API says now: another key than before must be endorsed."""
        self._believe(await self._feed.next(self._held.position, 0.0))

    def _believe(self, page: FeedPage) -> None:
        """Whose answer it is, and who signs the log: `FeedRejected` where that is not who it
        was."""
        held = self._held
        if held.tenant_id is not None and page.tenant_id != held.tenant_id:
            raise FeedRejected("the key in `key_file` is of another tenant than this cache")
        try:
            pin = pinned(held.pin, page.log_key, page.log_key_history, self._clock.now())
        except NotEndorsed as error:
            raise FeedRejected(str(error)) from error
        if (page.tenant_id, pin) != (held.tenant_id, held.pin):
            held.know(page.tenant_id, pin)

    def _barred(self) -> str | None:
        """A revoked key, or a deactivated tenant, ends what we may decide by what we hold."""
        try:
            key = self.policy_set.key(self._own_key)
        except MissingDocument:
            return "it is not known yet whether the key in `key_file` is valid"
        if key is None or not key.live(self._clock.now()):
            return "the key in `key_file` is not valid any more"
        if not self.policy_set.settings().active:
            return "the tenant is deactivated"
        return None


def _kept(settings: SidecarSettings, own_key: bytes) -> tuple[str, ...]:
    """What every decision of this sidecar looks at."""
    names = [TENANT, key_name(own_key)]
    if (agent := settings.agent) is not None:
        names += [role_name(agent.role), key_name(key_digest(read_key(agent.key_file)))]
        if agent.id is not None:
            names.append(agent_name(agent.id))
    return tuple(names)
