"""Reads a tenant's policy set from Redis, and trusts it only as far as it is signed.

    head       the state of the set, signed by the log's key (`policies.sets.signed_head`)
    nodes      lead from the head's root to a document's digest (`policies.sets.merkle_map`)
    documents  each accepted only with that digest

One HMGET reads all three as they were at one moment. An attacker who can write to this Redis can
withhold news, but can't tell us anything that the control API did not say. Knows the Redis
commands. Knows nothing of what is held here, nor of when to look again.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from redis.exceptions import NoPermissionError, RedisError

from policies.sets.merkle_map import NotProven, nodes_of, prove
from policies.sets.redis_keys import (
    CHALLENGES,
    HEAD,
    beats_key,
    changes_key,
    document_field,
    doubts_key,
    node_field,
    own_keys,
    session_key,
    set_key,
)
from policies.sets.signed_head import Claim, Heartbeat, SetHead, SignatureRejected
from sidecar.policy_cache.feed import FeedFailed
from sidecar.policy_cache.partial_replica.signature_check import SignatureCheck
from sidecar.policy_cache.partial_replica.working_set import ABSENT, HeldDocument

log = logging.getLogger(__name__)

SECONDS = 2.0
"""The time limit for an answer that does not wait for news."""
MAX_ENTRIES = 1000
MAX_CHALLENGES = 10_000
MAX_DAMAGE_REPORTS = 16
_BEGINNING = b"0-0"


class TornRead(FeedFailed):
    """the set does not hold what its head says: it is being written, or something else wrote to it.
    `fields` are the ones that are missing or wrong."""

    def __init__(self, message: str, fields: Iterable[bytes]) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


@dataclass(frozen=True, slots=True)
class SetNews:
    """New heads and heartbeats from the streams, each in order."""

    heads: tuple[SetHead, ...]
    beats: tuple[Heartbeat, ...]


class RedisReader:
    """One tenant's set. `client` is an asyncio client of redis-py; `log_keys` returns the keys that
    sign the log."""

    def __init__(
        self, client: Any, tenant_id: str, log_keys: Callable[[], tuple[bytes, ...]]
    ) -> None:
        self._check = SignatureCheck(tenant_id, log_keys)
        self._client = client
        self._tenant = tenant_id
        self._set = set_key(tenant_id)
        self._changes, self._beats = changes_key(tenant_id), beats_key(tenant_id)
        self._change_id: bytes | None = None
        self._beat_id: bytes | None = None

    @property
    def forged(self) -> int:
        """The number of items that the log's key did not sign."""
        return self._check.forged

    @property
    def doubts(self) -> list[bytes]:
        """The items that no key known here has signed: they are forged, or signed by a newer
        key."""
        return self._check.doubts

    def settle_doubts(self, doubts: Iterable[bytes]) -> list[str]:
        """See `SignatureCheck.settle_doubts`."""
        return self._check.settle_doubts(doubts)

    def reset_streams(self) -> None:
        """Forget how far the streams were read: they may not be the same as before."""
        self._change_id, self._beat_id = None, _BEGINNING

    def skip_heartbeats(self) -> None:
        """Read no heartbeats until the next challenge: they answer those of other sidecars."""
        self._beat_id = None

    async def find_stream_end(self) -> bool:
        """Find the current end of the stream of changes, unless it is known. Returns whether it had
        to be found. If so, read the set next: the set can't be older than that end, so no change is
        missed."""
        if self._change_id is not None:
            return False
        self._change_id = await self._end(self._changes)
        return True

    async def challenge(self, nonce: str, damaged: Sequence[bytes]) -> None:
        """Ask for a heartbeat that names `nonce`, and report damaged fields."""
        if self._beat_id is None:
            # The heartbeats of all sidecars are in one stream. The answer will come after those
            # that are in it now.
            self._beat_id = await self._end(self._beats)
        fields = {"t": self._tenant, "n": nonce}
        if damaged:
            # The fields are named in a stream that no other tenant reads, since all tenants share
            # the stream of challenges.
            await self._report_damage(damaged)
            fields["m"] = "1"
        await self._call(
            self._client.xadd(CHALLENGES, fields, maxlen=MAX_CHALLENGES, approximate=True)
        )

    async def _end(self, stream: str) -> bytes:
        last = await self._call(self._client.xrevrange(stream, count=1))
        return last[0][0] if last else _BEGINNING

    async def _report_damage(self, damaged: Sequence[bytes]) -> None:
        key, entry = doubts_key(self._tenant), {"f": orjson.dumps([*map(bytes.decode, damaged)])}
        # Approximate trimming keeps whole nodes of the stream, far more entries than these.
        request = self._client.xadd(key, entry, maxlen=MAX_DAMAGE_REPORTS, approximate=False)
        try:
            await self._call(request)
        except FeedFailed as error:
            # The challenge still asks the control API to look, and it removes what is in the way.
            log.warning("can't report the damage in Redis to the control API: %s", error)

    async def news(self, seconds: float) -> SetNews:
        """Read the streams; wait up to `seconds` if there is nothing new."""
        ends = {self._beats: self._beat_id, self._changes: self._change_id}
        streams = {stream: end for stream, end in ends.items() if end is not None}
        # At 0, Redis would block forever.
        block = max(1, int(seconds * 1000))
        read = self._client.xread(streams, count=MAX_ENTRIES, block=block)
        found = await self._call(read, seconds + SECONDS)
        heads: list[SetHead] = []
        beats: list[Heartbeat] = []
        for stream, entries in found or ():
            if stream == self._beats.encode():
                self._beat_id = entries[-1][0]
                beats += self._check.heartbeats(entries)
            else:
                self._change_id = entries[-1][0]
                heads += self._check.heads(entries)
        return SetNews(tuple(heads), tuple(beats))

    async def more_heads(self) -> list[SetHead]:
        """Return the heads of the changes since the last read, without waiting."""
        assert self._change_id is not None
        request = self._client.xrange(self._changes, b"(" + self._change_id, count=MAX_ENTRIES)
        if entries := await self._call(request):
            self._change_id = entries[-1][0]
        return self._check.heads(entries)

    async def read(
        self, names: Sequence[str], known: Mapping[str, str], *, bodies: bool = True
    ) -> tuple[SetHead, dict[str, HeldDocument | None]]:
        """Read the head, and under it the document with each name. A document whose digest is in
        `known` is held already: it is None in the result.

        Without `bodies`, returns only the names that are known or absent, and leaves out the
        others. Raises `TornRead`.
        """
        nodes = sorted(nodes_of(names)) if names else []
        fields = [HEAD, *map(node_field, nodes)]
        if bodies:
            fields += map(document_field, names)
        # One command, so head, nodes and documents are from the same moment.
        head, *values = await self._call(self._client.hmget(self._set, fields))
        opened = self._head(head)
        held = dict(zip(nodes, values, strict=False))
        documents = dict(zip(names, values[len(nodes) :], strict=False))
        found: dict[str, HeldDocument | None] = {}
        for name in names:
            # Absence is proven too: leaving a document out must be as detectable as changing it.
            digest = self._digest(opened, held, name)
            if digest is None:
                found[name] = None if known.get(name) == ABSENT.digest else ABSENT
            elif known.get(name) == digest:
                found[name] = None
            elif bodies:
                found[name] = HeldDocument(
                    digest, _verified_body(name, digest, documents.get(name))
                )
        return opened, found

    async def fields(self, fields: Sequence[bytes]) -> tuple[SetHead, dict[bytes, bytes | None]]:
        """Return the head, and these fields of the set as they were under it, not verified."""
        head, *values = await self._call(self._client.hmget(self._set, [HEAD, *fields]))
        return self._head(head), dict(zip(fields, values, strict=True))

    async def claim(self, session_id: str) -> Claim | None:
        """Return the claim to the session that the control API published, or None. Raises
        `FeedFailed`. A claim that can't be trusted counts as missing."""
        found = await self._call(self._client.hget(session_key(self._tenant, session_id), "c"))
        claim = None if found is None else self._check.claim(found)
        # A signed claim copied to another session's key does not count.
        return claim if claim is not None and claim.session_id == session_id else None

    def _head(self, signed: bytes | None) -> SetHead:
        if signed is None:
            raise FeedFailed(
                "Redis has no policy set of this tenant: it is not written yet, or lost"
            )
        try:
            return self._check.head(signed)
        except SignatureRejected as error:
            raise TornRead(f"the head in Redis is not trusted: {error}", [HEAD]) from error

    def _digest(self, head: SetHead, nodes: Mapping[str, bytes | None], name: str) -> str | None:
        try:
            return prove(head.root, nodes, name)
        except NotProven as error:
            raise TornRead(str(error), map(node_field, sorted(nodes_of([name])))) from error

    async def _call(self, request: Any, seconds: float = SECONDS) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError:
            raise FeedFailed(f"Redis did not answer within {seconds:g} s") from None
        except NoPermissionError as error:
            raise FeedFailed(
                f"Redis: {error}; the user of this tenant's sidecars needs the commands that "
                f"`control_api/policy/publishing/README.md` lists, and the keys "
                f"`{own_keys(self._tenant)}` and `{CHALLENGES}`"
            ) from error
        except (RedisError, OSError) as error:
            raise FeedFailed(f"Redis: {str(error) or type(error).__name__}") from error
        except Exception as error:
            # Garbage can make a parser raise anything, and uvloop raises `RuntimeError` for a write
            # to a broken connection. Close it: leftovers must not pass for the next answer.
            await self._client.aclose()
            raise FeedFailed(
                f"Redis sent an answer that can't be read: {type(error).__name__}"
            ) from error


def _verified_body(name: str, digest: str, body: bytes | None) -> bytes:
    if body is None or hashlib.sha256(body).hexdigest() != digest:
        why = "is missing" if body is None else "does not match the digest that was signed"
        raise TornRead(f"document `{name}` {why}", [document_field(name)])
    return body
