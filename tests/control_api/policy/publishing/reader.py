"""A sidecar's eyes on Redis: what it finds of a set, and that all of it is signed for."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import orjson
import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from policies.sets.merkle_map import ROOT, node_digest, nodes_of, prove
from policies.sets.redis_keys import (
    CHALLENGES,
    WRITER_POSITION,
    beats_key,
    changes_key,
    doubts_key,
    set_key,
)
from policies.sets.signed_head import Heartbeat, SetHead, SignatureRejected
from tests.support.control_api import ControlApi
from tests.support.redis import Redis
from tests.support.waiting import until

TENANT = "default"
_nonces = itertools.count(10_000_000)


class Reader:
    """Of one tenant, by the key that the control API itself tells."""

    def __init__(self, api: ControlApi, server: Redis, tenant_id: str = TENANT) -> None:
        self.api = api
        self.server = server
        once = Retry(NoBackoff(), 0)
        self.redis: Any = redis_py.Redis(port=server.port, protocol=2, socket_timeout=5, retry=once)
        self.tenant_id = tenant_id
        self._heads = dict[bytes, SetHead]()
        self._beats = dict[bytes, Heartbeat]()

    def store(self) -> tuple[str, int, dict[str, str]]:
        """Epoch, revision, and the documents with their digests, by HTTP."""
        epoch, since, held = "", 0, dict[str, str]()
        while True:
            page = self.api.admin(
                "GET", f"/v1/sidecars/policy-set?since={since}&epoch={epoch or ''}"
            )
            for document in page["documents"]:
                if document["digest"] is None:
                    held.pop(document["name"], None)
                else:
                    held[document["name"]] = document["digest"]
                since = document["revision"]
            epoch = page["epoch"]
            if not page["more"]:
                return epoch, page["revision"], held

    @property
    def public(self) -> bytes:
        page = self.api.admin("GET", "/v1/sidecars/policy-set?since=0")
        return base64.b64decode(page["log_key"])

    def opened(self, sealed: bytes) -> SetHead:
        return SetHead.opened(sealed, self.public, self.tenant_id)

    def head(self) -> SetHead | None:
        sealed = self.redis.hget(set_key(self.tenant_id), "head")
        return None if sealed is None else self.opened(sealed)

    def fields(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.redis.hgetall(set_key(self.tenant_id))
        return found

    def is_the_store_s(self) -> bool:
        """Whether the set in Redis is complete, signed, and says what the store says."""
        try:
            fields = self.fields()
            head = self.opened(fields[b"head"])
        except (KeyError, SignatureRejected, redis_py.ResponseError):
            return False
        epoch, revision, documents = self.store()
        if fields.get(WRITER_POSITION) != f"{epoch}:{revision}".encode():
            return False
        assert (head.epoch, head.revision) == (epoch, revision)
        nodes = {name[2:].decode(): body for name, body in fields.items() if name[:2] == b"n/"}
        if node_digest(nodes[ROOT]) != head.root:
            return False
        held = {name[2:].decode(): body for name, body in fields.items() if name[:2] == b"d/"}
        if {name: node_digest(body) for name, body in held.items()} != documents:
            return False
        assert nodes_of(documents) == nodes.keys()
        return all(prove(head.root, nodes, name) == documents[name] for name in documents)

    def follows(self) -> None:
        until("the set in Redis is the store's", self.is_the_store_s)

    def changes(self) -> list[SetHead]:
        found = [entry[b"h"] for _, entry in self.redis.xrange(changes_key(self.tenant_id))]
        for sealed in found:
            if sealed not in self._heads:
                self._heads[sealed] = self.opened(sealed)
        return [self._heads[sealed] for sealed in found]

    def ask(self, *doubted: str, tenant_id: str | None = None) -> str:
        """A challenge, as a sidecar writes it; its nonce."""
        nonce = f"nonce-{next(_nonces)}"
        entry = {"t": tenant_id or self.tenant_id, "n": nonce}
        if doubted:
            told = {"f": orjson.dumps(doubted).decode()}
            self.redis.xadd(doubts_key(self.tenant_id), told, maxlen=16, approximate=False)
            entry["m"] = "1"
        self.redis.xadd(CHALLENGES, entry)
        return nonce

    def beats(self) -> list[Heartbeat]:
        found = [entry[b"b"] for _, entry in self.redis.xrange(beats_key(self.tenant_id))]
        for sealed in found:
            if sealed not in self._beats:
                self._beats[sealed] = Heartbeat.opened(sealed, self.public, self.tenant_id)
        return [self._beats[sealed] for sealed in found]

    def answered(self, nonce: str) -> Heartbeat:
        found: list[Heartbeat] = []

        def there() -> bool:
            found[:] = [beat for beat in self.beats() if nonce in beat.nonces]
            return bool(found)

        until("a heartbeat that answers", there)
        return found[0]
