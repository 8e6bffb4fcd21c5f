"""Reads a tenant's policy set in Redis, and writes it by compare-and-set: a small change in one
step with its head, a large one in pieces under a lock, with the head last. Holds the key that signs
the heads, and verifies those of other replicas.

INVARIANT: a document's bucket is written with the document or after it, never before. So a bucket
lists only documents that were written, even if a replica dies in between.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from control_api.policy.publishing.redis_client import (
    Command,
    Part,
    RedisClient,
    RedisFault,
    Script,
    is_error,
)
from policies.ground.canonical import encode
from policies.ground.signing import KeyRing
from policies.sets.merkle_map import ROOT
from policies.sets.redis_keys import (
    HEAD,
    HISTORY,
    WRITER_POSITION,
    changes_key,
    node_field,
    set_key,
    writer_position,
)
from policies.sets.signed_head import SetHead, SignatureRejected

CHANGES = 10_000
"""The approximate number of heads that the stream of changes keeps."""
LOCK_MS = 10_000
"""The milliseconds after which a rebuild that writes nothing loses its lock. Another replica then
takes over."""

# KEYS: set, changes, lock. ARGV: the expected `at`, the new `at` or '', the new head or '', the
# lock token or '', the number of fields to set; then those fields with their values, then the
# fields to remove. A key of the wrong type is not ours and is deleted. The head is added to the
# stream before the set is written: if that fails, nothing has changed. Fields go 1000 arguments at
# a time, because Lua's `unpack` fails for several thousand.
_MOVE = Script(f"""\
local held = redis.pcall('HGET', KEYS[1], 'at')
if type(held) == 'table' then
  redis.call('UNLINK', KEYS[1])
  held = false
end
if (held or '') ~= ARGV[1] then return {{0, held or ''}} end
if ARGV[4] ~= '' then
  if redis.call('GET', KEYS[3]) ~= ARGV[4] then return {{0, held or ''}} end
  redis.call('PEXPIRE', KEYS[3], {LOCK_MS})
end
if ARGV[3] ~= '' then
  local function add()
    return redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', {CHANGES}, '*', 'h', ARGV[3])
  end
  local added = add()
  if type(added) == 'table' and added.err
      and (added.err:find('WRONGTYPE') or added.err:find('exhausted')) then
    redis.call('DEL', KEYS[2])
    added = add()
  end
  if type(added) == 'table' and added.err then return added end
end
local last = 5 + 2 * tonumber(ARGV[5])
for from = 6, last, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, from, math.min(from + 999, last)))
end
for from = last + 1, #ARGV, 1000 do
  redis.call('HDEL', KEYS[1], unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'head', ARGV[3], 'at', ARGV[2])
end
return {{1, ''}}
""")

# KEYS: set. ARGV: the expected `at`. UNLINK frees the memory of a large set in the background.
_CLEAR = Script("""\
local held = redis.pcall('HGET', KEYS[1], 'at')
if type(held) ~= 'table' and (held or '') ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1])
return 1
""")

# KEYS: lock. ARGV: the token, and the part of it that names the process. A lock without a plausible
# expiry is not ours and is deleted. A lock of this process is left over from a failed attempt and
# is deleted too: late writes of that attempt carry another token and are refused.
_LOCK = Script(f"""\
local left = redis.call('PTTL', KEYS[1])
local held = redis.pcall('GET', KEYS[1])
local own = type(held) == 'string' and held:sub(1, #ARGV[2]) == ARGV[2]
if own or left == -1 or left > {LOCK_MS} then redis.call('DEL', KEYS[1]) end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', {LOCK_MS}) then return 1 end
return 0
""")
_UNLOCK = Script("""\
if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")


@dataclass(frozen=True, slots=True)
class HeldSet:
    """The main fields of a policy set as read from Redis, unverified. A missing field is None."""

    at: bytes | None
    head: bytes | None
    history: bytes | None
    root: bytes | None


NO_SET = HeldSet(None, None, None, None)


class RedisSets:
    """The policy sets of all tenants in one Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def held(self, tenant_id: str) -> HeldSet:
        return HeldSet(
            *await self.fields(tenant_id, (WRITER_POSITION, HEAD, HISTORY, node_field(ROOT)))
        )

    async def fields(self, tenant_id: str, names: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these fields of the tenant's set; None for a missing one. All are
        None if the key is not a hash."""
        if not names:
            return []
        try:
            found = await self._client.call("HMGET", set_key(tenant_id), *names)
        except RedisFault as fault:
            if not is_error(fault.__cause__, "WRONGTYPE"):
                raise
            # The key is not ours. The next write deletes it.
            return [None] * len(names)
        if not isinstance(found, list) or len(found) != len(names):
            raise RedisFault("its answer to HMGET has an unknown form")
        return [value if isinstance(value, bytes) else None for value in found]

    async def move(
        self,
        tenant_id: str,
        expected: bytes | None,
        fields: Mapping[bytes, bytes | None],
        *,
        at: bytes = b"",
        head: bytes = b"",
        token: str = "",
    ) -> bool:
        """Set these fields (None removes a field), then `at` and `head` if they are given, all in
        one step.

        Return False and change nothing if the set is no longer at `expected`, or if the lock of
        `token` is lost.
        """
        to_set = {name: body for name, body in fields.items() if body is not None}
        to_remove = [name for name, body in fields.items() if body is None]
        parts: list[Part] = [expected or b"", at, head, token, len(to_set)]
        parts.extend(chain.from_iterable(to_set.items()))
        parts.extend(to_remove)
        answer = await self._client.script(_MOVE, _keys(tenant_id), parts)
        if not isinstance(answer, list) or len(answer) != 2 or answer[0] not in (0, 1):
            raise RedisFault("its answer to the script has an unknown form")
        return bool(answer[0])

    async def clear(self, tenant_id: str, expected: bytes | None) -> bool:
        """Remove the tenant's whole set. Return False if it is no longer at `expected`."""
        answer = await self._client.script(_CLEAR, _keys(tenant_id)[:1], (expected or b"",))
        return bool(answer == 1)

    async def lock(self, tenant_id: str, token: str) -> bool:
        """Take the lock for a rebuild of the tenant's set. Return False if another replica holds
        it. The lock expires after `LOCK_MS` without a write, and `move` then refuses late writes. A
        token is `<process>:<attempt>`."""
        # Include the colon, so that no process's name is a prefix of another's.
        process = token.partition(":")[0] + ":"
        return bool(await self._client.script(_LOCK, _keys(tenant_id)[2:], (token, process)) == 1)

    async def unlock(self, tenant_id: str, token: str) -> None:
        await self._client.script(_UNLOCK, _keys(tenant_id)[2:], (token,))


def at_query(tenant_id: str) -> Command:
    """Return the Redis command that reads the revision of a tenant's set."""
    return ("HGET", set_key(tenant_id), WRITER_POSITION)


def _keys(tenant_id: str) -> tuple[str, str, str]:
    return set_key(tenant_id), changes_key(tenant_id), f"{set_key(tenant_id)}:lock"


PIECE_FIELDS = 500
PIECE_BYTES = 1024 * 1024
ONE_STEP = 4
"""The most pieces that may be written in one step. Such a step takes Redis a few milliseconds, in
which it serves no other client."""


class SetChanged(Exception):
    """another replica has changed the set since it was read"""


class SetLocked(SetChanged):
    """another replica is rebuilding the set"""


class Batches:
    """Collects fields of one tenant's set, and writes them in batches, provided that the set is
    still at `at`. `fields` holds what has not been written yet. `token` is the token of the lock if
    the caller holds it, or ''."""

    def __init__(
        self,
        sets: RedisSets,
        tenant_id: str,
        at: bytes | None,
        new_token: Callable[[], str],
        token: str,
    ) -> None:
        self.fields: dict[bytes, bytes | None] = {}
        self._sets, self._tenant_id, self._at = sets, tenant_id, at
        self._new_token, self._token = new_token, token
        self._locked_here, self._bytes = False, 0

    async def add(self, field: bytes, body: bytes | None) -> None:
        """Write a field, now or together with later ones. Raise `SetChanged` if the set is no
        longer at `at`."""
        self.fields[field] = body
        self._bytes += len(field) + len(body or b"")
        # Without a lock, everything may still fit into one step, which readers see as one change.
        # Under a lock readers wait for the new head anyway, so send small pieces, which keep Redis
        # responsive.
        pieces = 1 if self._token else ONE_STEP
        if not _over(len(self.fields), self._bytes, pieces):
            return
        if not self._token:
            token = self._new_token()
            if not await self._sets.lock(self._tenant_id, token):
                raise SetLocked
            self._token, self._locked_here = token, True
        await self._send()

    async def finish(self, at: bytes, head: bytes) -> None:
        """Write the remaining fields, and the new `at` and `head` unless they are empty. Raise
        `SetChanged` if the set is no longer at the expected `at`."""
        await self._send(at, head)

    async def close(self) -> None:
        """Release the lock if `add` took it."""
        if self._locked_here:
            await self._sets.unlock(self._tenant_id, self._token)

    async def _send(self, at: bytes = b"", head: bytes = b"") -> None:
        fields, self.fields, self._bytes = self.fields, {}, 0
        # Each piece checks `at` and the token again. If we die between two pieces, the lock
        # expires, and the next reconciliation finds the missing nodes.
        if not await self._sets.move(
            self._tenant_id, self._at, fields, at=at, head=head, token=self._token
        ):
            raise SetChanged


def _over(fields: int, size: int, pieces: int) -> bool:
    return fields > pieces * PIECE_FIELDS or size > pieces * PIECE_BYTES


def one_step(fields: dict[bytes, bytes | None]) -> bool:
    """Return whether these fields are few and small enough to be written in a single step."""
    size = sum(len(field) + len(body or b"") for field, body in fields.items())
    return not _over(len(fields), size, ONE_STEP)


@dataclass(frozen=True, slots=True)
class SetSigner:
    """Signs the heads of policy sets and verifies those of other replicas. `ring` holds the log's
    keys; `epoch` identifies the store whose revisions are signed."""

    ring: KeyRing
    epoch: str

    @property
    def history(self) -> bytes:
        """The endorsements of earlier keys that lead to the current key, encoded as the set stores
        them."""
        return encode([each.to_wire() for each in self.ring.history])

    def at(self, revision: int) -> bytes:
        return writer_position(self.epoch, revision)

    def owns(self, held: HeldSet) -> bool:
        """Return whether the set in Redis claims to come from this store. The claim is not
        signed."""
        epoch, _, revision = (held.at or b"").rpartition(b":")
        return epoch == self.epoch.encode() and revision.isdigit()

    def open_head(self, tenant_id: str, sealed: bytes, publics: Iterable[bytes]) -> SetHead | None:
        """Return the verified head, or None if none of these keys signed it or it comes from
        another store."""
        # `opened` verifies the signature before it parses the head. Trying each key is cheap: there
        # is only one more for each rotation.
        for public in publics:
            try:
                head = SetHead.opened(sealed, public, tenant_id)
            except SignatureRejected:
                continue
            return head if head.epoch == self.epoch else None
        return None

    def signed_by_us(self, tenant_id: str, sealed: bytes | None) -> bool:
        """Return whether this process's own key signed the head."""
        mine = (self.ring.signer.public,)
        return sealed is not None and self.open_head(tenant_id, sealed, mine) is not None
