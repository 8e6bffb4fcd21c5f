"""A tenant's policy set as it lies in Redis: read, and believed only as far as it is signed.

    head       how the set stands, signed by the log's key (`policies.sets.signed_head`)
    nodes      that lead from the head's root to a document's digest (`policies.sets.merkle_map`)
    documents  of that digest

One HMGET reads all three as they stood at one moment. Whoever writes to this Redis can keep news
from us, never tell us what the control API did not say. Knows commands; knows nothing of what is
held here, nor of when to look again.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from redis.exceptions import RedisError

from policies.sets.merkle_map import NotProven, nodes_of, prove
from policies.sets.redis_keys import (
    CHALLENGES,
    HEAD,
    beats_key,
    changes_key,
    document_field,
    doubts_key,
    node_field,
    session_key,
    set_key,
)
from policies.sets.signed_head import Claim, Heartbeat, SetHead, SignatureRejected
from sidecar.policy_cache.feed import FeedFailed
from sidecar.policy_cache.working_set import ABSENT, Proven

log = logging.getLogger(__name__)

SECONDS = 2.0
"""How long an answer may take that waits for nothing."""
MANY = 1000
CHALLENGES_KEPT = 10_000
DOUBTS_KEPT = 16
_BEGINNING = b"0-0"
_Said = TypeVar("_Said", SetHead, Heartbeat, Claim)


class TornRead(FeedFailed):
    """the set does not hold what its head says: it is being written, or something else wrote to it.
    `fields` are those that are missing or wrong."""

    def __init__(self, message: str, fields: Iterable[bytes]) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


@dataclass(frozen=True, slots=True)
class SetNews:
    """What came in by the streams: heads of changes in their order, heartbeats in theirs."""

    heads: tuple[SetHead, ...]
    beats: tuple[Heartbeat, ...]


class RedisReader:
    """One tenant's set. `client` is an asyncio client of redis-py, `publics` says by which keys
    the log is signed; `forged` counts what was signed by none of them."""

    def __init__(
        self, client: Any, tenant_id: str, publics: Callable[[], tuple[bytes, ...]]
    ) -> None:
        self._publics = publics
        self.forged = 0
        self._client = client
        self._tenant = tenant_id
        self._set = set_key(tenant_id)
        self._changes, self._beats = changes_key(tenant_id), beats_key(tenant_id)
        self._change_id: bytes | None = None
        self._beat_id = _BEGINNING
        self._sealed: tuple[bytes, SetHead] | None = None

    def forget_place(self) -> None:
        """The streams may be others than before: begin anew with them."""
        self._change_id, self._beat_id = None, _BEGINNING

    async def find_place(self) -> bool:
        """Where the changes end now, if that is not known; whether it was not. What is read of the
        set after this can't be older than what the changes from here on tell."""
        if self._change_id is not None:
            return False
        last = await self._ask(self._client.xrevrange(self._changes, count=1))
        self._change_id = last[0][0] if last else _BEGINNING
        return True

    async def challenge(self, nonce: str, missing: Sequence[bytes]) -> None:
        """Ask for a heartbeat that names `nonce`, and tell which fields are not as they should be:
        those where no other tenant reads."""
        fields = {"t": self._tenant, "n": nonce}
        if missing:
            await self._doubt(missing)
            fields["m"] = "1"
        await self._ask(
            self._client.xadd(CHALLENGES, fields, maxlen=CHALLENGES_KEPT, approximate=True)
        )

    async def _doubt(self, missing: Sequence[bytes]) -> None:
        told = orjson.dumps([field.decode() for field in missing]).decode()
        key = doubts_key(self._tenant)
        try:
            await self._ask(
                self._client.xadd(key, {"f": told}, maxlen=DOUBTS_KEPT, approximate=False)
            )
        except FeedFailed as error:
            # Whatever lies there, the control API removes it once it is asked to look.
            log.warning("what is wrong in Redis can't be told: %s", error)

    async def news(self, seconds: float) -> SetNews:
        """What is new on the streams; waits for so long where nothing is."""
        streams = {self._beats: self._beat_id}
        if self._change_id is not None:
            streams[self._changes] = self._change_id
        block = max(1, int(seconds * 1000))
        read = self._client.xread(streams, count=MANY, block=block)
        found = await self._ask(read, seconds + SECONDS)
        heads: list[SetHead] = []
        beats: list[Heartbeat] = []
        for stream, entries in found or ():
            if stream == self._beats.encode():
                self._beat_id = entries[-1][0]
                beats += self._opened(Heartbeat, entries, b"b")
            else:
                self._change_id = entries[-1][0]
                heads += self._opened(SetHead, entries, b"h")
        return SetNews(tuple(heads), tuple(beats))

    async def more_heads(self) -> list[SetHead]:
        """Of the changes since those that were read last; waits for none."""
        assert self._change_id is not None
        start = b"(" + self._change_id
        entries = await self._ask(self._client.xrange(self._changes, min=start, count=MANY))
        if entries:
            self._change_id = entries[-1][0]
        return self._opened(SetHead, entries, b"h")

    async def read(
        self, names: Sequence[str], known: Mapping[str, str], *, bodies: bool = True
    ) -> tuple[SetHead, dict[str, Proven | None]]:
        """The head, and under it what each name's document is; None for one whose digest is that in
        `known`, which has its body already. Raises `TornRead`; without `bodies` only those can be
        told
        that are known or not there, and the others are left out."""
        nodes = sorted(nodes_of(names)) if names else []
        fields = [HEAD, *map(node_field, nodes)]
        if bodies:
            fields += map(document_field, names)
        head, *values = await self._ask(self._client.hmget(self._set, fields))
        opened = self._head(head)
        held = dict(zip(nodes, values, strict=False))
        documents = dict(zip(names, values[len(nodes) :], strict=False))
        proven: dict[str, Proven | None] = {}
        for name in names:
            digest = self._digest(opened, held, name)
            if digest is None:
                proven[name] = None if known.get(name) == ABSENT.digest else ABSENT
            elif known.get(name) == digest:
                proven[name] = None
            elif bodies:
                proven[name] = Proven(digest, _checked(name, digest, documents.get(name)))
        return opened, proven

    async def claim(self, session_id: str) -> Claim | None:
        """What the control API said of the session, None where it said nothing here. Raises
        `FeedFailed`; what can't be believed is as if it were not there."""
        found = await self._ask(self._client.hget(session_key(self._tenant, session_id), "c"))
        try:
            claim = None if found is None else self._believed(Claim, found)
        except SignatureRejected:
            return None
        return claim if claim is not None and claim.session_id == session_id else None

    def _head(self, sealed: bytes | None) -> SetHead:
        if sealed is None:
            raise FeedFailed("Redis has no policy set of this tenant: it is on its way, or lost")
        if self._sealed is None or self._sealed[0] != sealed:
            try:
                self._sealed = sealed, self._believed(SetHead, sealed)
            except SignatureRejected as error:
                self.forged += 1
                raise TornRead(f"the head in Redis can't be believed: {error}", [HEAD]) from error
        return self._sealed[1]

    def _digest(self, head: SetHead, nodes: Mapping[str, bytes | None], name: str) -> str | None:
        try:
            return prove(head.root, nodes, name)
        except NotProven as error:
            raise TornRead(str(error), map(node_field, sorted(nodes_of([name])))) from error

    def _opened(self, kind: Any, entries: Iterable[Any], field: bytes) -> list[Any]:
        """Those that are signed; the others are as if they were not there."""
        opened = []
        for _, values in entries:
            try:
                opened.append(self._believed(kind, values.get(field, b"")))
            except SignatureRejected:
                self.forged += 1
        return opened

    def _believed(self, kind: type[_Said], sealed: bytes) -> _Said:
        """`SignatureRejected` where none of the log's keys signed it."""
        for public in self._publics():
            with suppress(SignatureRejected):
                return kind.opened(sealed, public, self._tenant)
        raise SignatureRejected("the signature is not by the log's key")

    async def _ask(self, question: Any, seconds: float = SECONDS) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await question
        except TimeoutError:
            raise FeedFailed(f"Redis did not answer within {seconds:g} s") from None
        except (RedisError, OSError) as error:
            raise FeedFailed(f"Redis: {str(error) or type(error).__name__}") from error
        except Exception as error:
            # Rubbish makes a parser raise anything, and uvloop has a `RuntimeError` for a write on
            # a connection that broke: what is left on it must not be taken for the next answer.
            await self._client.aclose()
            raise FeedFailed(f"Redis talks rubbish: {type(error).__name__}") from error


def _checked(name: str, digest: str, body: bytes | None) -> bytes:
    if body is None or hashlib.sha256(body).hexdigest() != digest:
        why = "is missing" if body is None else "is not the one that was signed"
        raise TornRead(f"document `{name}` {why}", [document_field(name)])
    return body
