"""The control API as a sidecar sees it by way of Redis: signed heads and documents, and heartbeats.

The form of what lies in Redis is the contract between the two services; the suite of the control
API holds the real one to the same form, and `tests/stories` runs both together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any

import orjson
import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from policies.definitions.model import Key, Policy, TenantSettings
from policies.ground.addresses import RedisUrl
from policies.ground.keys import key_digest
from policies.sets.merkle_map import ROOT, node_digest, updated_nodes
from policies.sets.policy_set import document_digest, key_document, key_name
from policies.sets.redis_keys import (
    CHALLENGES,
    HEAD,
    WRITER_POSITION,
    beats_key,
    changes_key,
    document_field,
    doubts_key,
    node_field,
    set_key,
    writer_position,
)
from policies.sets.signed_head import Heartbeat, SetHead
from tests.support.fake_control_api import SIDECAR_KEY, FakeControlApi
from tests.support.redis import Redis


class FakeControlApiWithRedis(FakeControlApi):
    """Publishes each change to `server` at once; answers challenges while `beats`."""

    def __init__(self, server: Redis, *, cluster: bool = False) -> None:
        super().__init__()
        self.server = server
        self.redis: Any = _cluster(server) if cluster else _single(server)
        self.redis_url = RedisUrl.parse(server.url)
        self.beats = True
        self.pushes = True
        self.challenges: list[dict[bytes, bytes]] = []
        self.nodes: dict[str, bytes] = {}
        self._pushed = ("", 0)
        self._beating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._beating = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        await super().stop()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        self.redis.close()

    def publish(self, changes: dict[str, bytes | None]) -> int:
        since = self.revision
        revision = super().publish(changes)
        if since == 0:
            self.nodes = {}
        digests = {
            name: None if body is None else document_digest(body) for name, body in changes.items()
        }
        after = updated_nodes(self.nodes, digests)
        self.nodes = {
            node: body for node, body in {**self.nodes, **after}.items() if body is not None
        }
        if self.pushes:
            self.push(since, changes)
        return revision

    def create_tenant(self, *policies: Policy, settings: TenantSettings | None = None) -> None:
        """Create a tenant. The sidecar's own key is a document too."""
        super().create_tenant(*policies, settings=settings)
        self.publish({key_name(key_digest(SIDECAR_KEY)): key_document(Key("key_s", "sidecar"))})

    def head(self, since: int, names: tuple[str, ...] | None) -> SetHead:
        root = node_digest(self.nodes[ROOT])
        return SetHead(self.tenant_id, self.epoch, since, self.revision, root, names)

    def push(
        self, since: int, changes: dict[str, bytes | None], *, without: Collection[str] = ()
    ) -> None:
        """Push a change, and nothing else. `without` leaves out the bodies of these documents, as
        if Redis had lost them."""
        sealed = self.head(since, tuple(changes)).sealed(self.signer)
        with self.redis.pipeline(transaction=True) as pipe:
            self._write(pipe, changes, sealed)
            for name in without:
                pipe.hdel(set_key(self.tenant_id), document_field(name))
            pipe.xadd(changes_key(self.tenant_id), {"h": sealed})
            pipe.execute()

    def rebuild(self) -> None:
        """Write the whole set again, as after a loss."""
        everything = {name: body for name, (_, body) in self.documents.items()}
        sealed = self.head(0, None).sealed(self.signer)
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.delete(set_key(self.tenant_id))
            self._write(pipe, everything, sealed)
            pipe.xadd(changes_key(self.tenant_id), {"h": sealed})
            pipe.execute()

    def _write(self, pipe: Any, changes: dict[str, bytes | None], sealed: bytes) -> None:
        key = set_key(self.tenant_id)
        fields = {HEAD: sealed, WRITER_POSITION: writer_position(self.epoch, self.revision)}
        fields |= {node_field(node): body for node, body in self.nodes.items()}
        fields |= {document_field(n): body for n, body in changes.items() if body is not None}
        pipe.hset(key, mapping=fields)
        for name, body in changes.items():
            if body is None:
                pipe.hdel(key, document_field(name))

    async def _beat(self) -> None:
        last = "0-0"
        while True:
            await asyncio.sleep(0.01)
            # Redis may be gone: that is what some tests are about.
            with contextlib.suppress(redis_py.RedisError):
                # In a thread: a Redis that hangs must not hang the sidecar under test.
                for _, entries in await asyncio.to_thread(self.redis.xread, {CHALLENGES: last}):
                    last = entries[-1][0]
                    self.challenges += [fields for _, fields in entries]
                    self.answer([fields[b"n"].decode() for _, fields in entries])

    def answer(self, nonces: list[str], **changed: Any) -> None:
        """Return a heartbeat for these challenges."""
        if self.beats:
            fields = {"epoch": self.epoch, "revision": self.revision, **changed}
            beat = Heartbeat(tenant_id=self.tenant_id, now=0, nonces=tuple(nonces), **fields)
            self.redis.xadd(beats_key(self.tenant_id), {"b": beat.sealed(self.signer)}, maxlen=64)

    def missing(self) -> list[str]:
        """Return the fields that sidecars reported as missing."""
        entries = self.redis.xrange(doubts_key(self.tenant_id))
        reports = [orjson.loads(entry[b"f"]) for _, entry in entries]
        return [field for fields in reports for field in fields]


def _single(server: Redis) -> Any:
    once = Retry(NoBackoff(), 0)
    return redis_py.Redis(port=server.port, protocol=2, socket_timeout=5, retry=once)


def _cluster(server: Redis) -> Any:
    return redis_py.RedisCluster(host="127.0.0.1", port=server.port, protocol=2, socket_timeout=5)
