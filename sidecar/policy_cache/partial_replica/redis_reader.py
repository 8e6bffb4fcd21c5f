"""Reads a tenant's policy set from Redis, and trusts it only as far as it is signed.

    head       the state of the set, signed by the log's key (`policies.sets.signed_head`)
    nodes      lead from the head's root to a document's digest (`policies.sets.merkle_map`)
    documents  each accepted only with that digest

One HMGET reads all three as they were at one moment. An attacker who can write to this Redis can
withhold news, but can't tell us anything that the control API did not say.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

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
from sidecar.policy_cache.partial_replica.working_set import ABSENT, HeldDocument

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
"""The seconds within which Redis must answer, besides any time for which it waits for news."""
MAX_ENTRIES = 1000
MAX_CHALLENGES = 10_000
MAX_DAMAGE_REPORTS = 16
_BEGINNING = b"0-0"

MAX_UNVERIFIED = 16
"""The most items with an unknown signature that are kept until the keys are known. One forged item
is enough for an alert."""
MAX_UNVERIFIED_BYTES = 2 * 1024 * 1024
"""The largest item with an unknown signature that is kept; a larger one counts as forged at once.
The largest item that is ever signed is a head of 1,000 names (`MAX_CHANGED_NAMES`) of two
identifiers each (`candidate/…/…`) of 256 characters of 4 bytes: under 2,070,000 bytes."""
_Signed = TypeVar("_Signed", SetHead, Heartbeat, Claim)
Entries = Iterable[tuple[bytes, Mapping[bytes, bytes]]]
"""Entries of a Redis stream: each has its id and its fields."""


class TornRead(FeedFailed):
    """the set does not hold what its head says: it is being written, or something else wrote to it.
    `fields` are the ones that are missing or wrong."""

    def __init__(self, message: str, fields: Iterable[bytes]) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class SignatureCheck:
    """Verifies the signatures of one tenant's items in Redis. `forged` counts the items that none
    of `log_keys` signed.

    An item with an unknown signature is only `unverified` at first, since the key may have been
    rotated. Once the current keys are known, `recheck` counts or forgets it. An item larger than
    any that is ever signed counts at once, and is not kept.
    """

    def __init__(self, tenant_id: str, log_keys: Callable[[], tuple[bytes, ...]]) -> None:
        self.forged = 0
        self._tenant = tenant_id
        self._log_keys = log_keys
        self._head: tuple[bytes, SetHead] | None = None
        self._unverified: dict[bytes, tuple[str, Callable[[], object]]] = {}
        self._too_large: str | None = None

    @property
    def unverified(self) -> list[bytes]:
        return [*self._unverified]

    def recheck(self, unverified: Iterable[bytes]) -> list[str]:
        """Count those of these unverified items that the keys known now did not sign either.
        Returns the fault of each for the log. If an item has been too large since the last call,
        its fault comes first."""
        too_large, self._too_large = self._too_large, None
        wrong = []
        for signed in unverified:
            what, open_again = self._unverified.pop(signed)
            try:
                open_again()
            except SignatureRejected as error:
                wrong.append(self._fault(what, signed, error))
        self.forged += len(wrong)
        return wrong if too_large is None else [too_large, *wrong]

    def head(self, signed: bytes) -> SetHead:
        """Return the verified head. Raises `SignatureRejected` if the signature is not by a known
        key; the head is then `unverified`."""
        # The stream brings the head that the set then has: verify its signature once.
        if self._head is None or self._head[0] != signed:
            try:
                self._head = signed, self._opened(SetHead, signed)
            except SignatureRejected:
                self._keep_unverified("a head", SetHead, signed)
                raise
        return self._head[1]

    def heads(self, entries: Entries) -> list[SetHead]:
        """Return the heads that have a valid signature. Entries without one are left out."""
        opened = []
        for _, fields in entries:
            with suppress(SignatureRejected):
                opened.append(self.head(fields.get(b"h", b"")))
        return opened

    def heartbeats(self, entries: Entries) -> list[Heartbeat]:
        """Return the heartbeats that have a valid signature. Entries without one are left out."""
        opened = []
        for _, fields in entries:
            signed = fields.get(b"b", b"")
            try:
                opened.append(self._opened(Heartbeat, signed))
            except SignatureRejected:
                self._keep_unverified("a heartbeat", Heartbeat, signed)
        return opened

    def claim(self, signed: bytes) -> Claim | None:
        """Return the claim if its signature is valid; otherwise None."""
        with suppress(SignatureRejected):
            return self._opened(Claim, signed)
        return None

    def _keep_unverified(self, what: str, kind: type[_Signed], signed: bytes) -> None:
        if len(signed) > MAX_UNVERIFIED_BYTES:
            self.forged += 1
            self._too_large = self._fault(what, signed, f"none is over {MAX_UNVERIFIED_BYTES}")
        elif len(self._unverified) < MAX_UNVERIFIED:
            self._unverified[signed] = what, lambda: self._opened(kind, signed)

    def _fault(self, what: str, signed: bytes, why: object) -> str:
        return f"{what} of tenant `{self._tenant}`, {len(signed)} bytes: {why}"

    def _opened(self, kind: type[_Signed], signed: bytes) -> _Signed:
        # During a key rotation there are several.
        for public in self._log_keys():
            with suppress(SignatureRejected):
                return kind.opened(signed, public, self._tenant)
        raise SignatureRejected("it is not signed by the log's key, nor by one that it endorses")


@dataclass(frozen=True, slots=True)
class SetNews:
    """The new heads and heartbeats that were read from the streams, each in order."""

    heads: tuple[SetHead, ...]
    beats: tuple[Heartbeat, ...]


class RedisReader:
    """Reads one tenant's policy set from Redis, and verifies it. `client` is an asyncio client of
    redis-py; `log_keys` returns the keys whose signatures count."""

    def __init__(
        self, client: Any, tenant_id: str, log_keys: Callable[[], tuple[bytes, ...]]
    ) -> None:
        self.check = SignatureCheck(tenant_id, log_keys)
        self._client = client
        self._tenant = tenant_id
        self._set = set_key(tenant_id)
        self._changes, self._beats = changes_key(tenant_id), beats_key(tenant_id)
        self._change_id: bytes | None = None
        self._beat_id: bytes | None = None

    def reset_streams(self) -> None:
        """Forget how far the streams were read: after a failure of Redis they may not be the same
        streams."""
        self._change_id, self._beat_id = None, _BEGINNING

    def skip_heartbeats(self) -> None:
        """Stop reading heartbeats until the next challenge: until then, they answer other
        sidecars."""
        self._beat_id = None

    async def find_stream_end(self) -> bool:
        """Find the current end of the stream of changes, unless it is known. Returns True if it had
        to be found. Then read the set next: the set can't be older than that end, so no change is
        missed."""
        if self._change_id is not None:
            return False
        self._change_id = await self._end(self._changes)
        return True

    async def challenge(self, nonce: str, damaged: Sequence[bytes]) -> None:
        """Ask the control API, through Redis, for a heartbeat that names `nonce`, and report
        damaged fields."""
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
        request = self._client.xadd(CHALLENGES, fields, maxlen=MAX_CHALLENGES, approximate=True)
        await self._call(request)

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
        """Return the new entries of the streams. Waits up to `seconds` if there are none."""
        ends = {self._beats: self._beat_id, self._changes: self._change_id}
        streams = {stream: end for stream, end in ends.items() if end is not None}
        # At 0, Redis would block forever.
        block = max(1, int(seconds * 1000))
        read = self._client.xread(streams, count=MAX_ENTRIES, block=block)
        found = await self._call(read, seconds + ANSWER_SECONDS)
        heads: list[SetHead] = []
        beats: list[Heartbeat] = []
        for stream, entries in found or ():
            if stream == self._beats.encode():
                self._beat_id = entries[-1][0]
                beats += self.check.heartbeats(entries)
            else:
                self._change_id = entries[-1][0]
                heads += self.check.heads(entries)
        return SetNews(tuple(heads), tuple(beats))

    async def more_heads(self) -> list[SetHead]:
        """Return the heads that have arrived since the last read, without waiting."""
        assert self._change_id is not None
        request = self._client.xrange(self._changes, b"(" + self._change_id, count=MAX_ENTRIES)
        if entries := await self._call(request):
            self._change_id = entries[-1][0]
        return self.check.heads(entries)

    async def read(
        self, names: Sequence[str], known: Mapping[str, str], *, bodies: bool = True
    ) -> tuple[SetHead, dict[str, HeldDocument | None]]:
        """Read the head, and the documents with these names under that head. A document whose
        digest is in `known` is held already: its value in the result is None.

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
            try:
                digest = prove(opened.root, held, name)
            except NotProven as error:
                raise TornRead(str(error), map(node_field, sorted(nodes_of([name])))) from error
            if digest is None:
                found[name] = None if known.get(name) == ABSENT.digest else ABSENT
            elif known.get(name) == digest:
                found[name] = None
            elif bodies:
                body = documents.get(name)
                if body is None or hashlib.sha256(body).hexdigest() != digest:
                    wrong = "does not match the digest that was signed"
                    fault = "is missing" if body is None else wrong
                    raise TornRead(f"document `{name}` {fault}", [document_field(name)])
                found[name] = HeldDocument(digest, body)
        return opened, found

    async def fields(self, fields: Sequence[bytes]) -> tuple[SetHead, dict[bytes, bytes | None]]:
        """Return the head, and these fields of the set from the same moment. The fields are not
        verified."""
        head, *values = await self._call(self._client.hmget(self._set, [HEAD, *fields]))
        return self._head(head), dict(zip(fields, values, strict=True))

    async def claim(self, session_id: str) -> Claim | None:
        """Return the claim to the session that the control API published; None if there is none, or
        if it can't be trusted. Raises `FeedFailed`."""
        found = await self._call(self._client.hget(session_key(self._tenant, session_id), "c"))
        claim = None if found is None else self.check.claim(found)
        # A signed claim copied to another session's key does not count.
        return claim if claim is not None and claim.session_id == session_id else None

    def _head(self, signed: bytes | None) -> SetHead:
        if signed is None:
            why = "it is not written yet, or lost"
            raise FeedFailed(f"Redis has no policy set of this tenant: {why}")
        try:
            return self.check.head(signed)
        except SignatureRejected as error:
            raise TornRead(f"the head in Redis is not trusted: {error}", [HEAD]) from error

    async def _call(self, request: Any, seconds: float = ANSWER_SECONDS) -> Any:
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
            name = type(error).__name__
            raise FeedFailed(f"Redis sent an answer that can't be read: {name}") from error
