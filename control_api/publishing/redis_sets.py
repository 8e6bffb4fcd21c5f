"""A tenant's policy set as Redis holds it: read, and moved by compare-and-set. Knows keys and
scripts; knows neither the store nor what a head says.

INVARIANT: whoever writes a document writes its bucket with it or after it, never before: so the
buckets tell what was written, whoever died in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from control_api.publishing.redis_client import (
    Command,
    Part,
    RedisClient,
    RedisFault,
    Script,
    refused,
)
from policies.sets.merkle_map import ROOT
from policies.sets.redis_keys import AT, HEAD, HISTORY, changes_key, node_field, set_key

CHANGES = 10_000
"""Heads that the stream of changes keeps, about."""
LOCK_MS = 10_000
"""How long a rebuild may say nothing before another replica takes it over."""

# KEYS: set, changes, lock. ARGV: the `at` that is expected, the new one or '', the new head or '',
# the token of the lock or '', how many fields to set; then those with their values, then those to
# remove. What is of another type was put there by someone else, and goes. The change is added
# before the set moves: where that fails, nothing has moved.
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

# KEYS: set. ARGV: the `at` that is expected.
_CLEAR = Script("""\
local held = redis.pcall('HGET', KEYS[1], 'at')
if type(held) ~= 'table' and (held or '') ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1])
return 1
""")

# KEYS: lock. ARGV: token, and its part that names the process. A lock that does not run out is none
# of ours. One of this process is what an attempt left that came to nothing: whatever of that is
# still on its way comes with another token, and is refused.
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
    """What Redis says of a set, unverified; None for what is not there."""

    at: bytes | None
    head: bytes | None
    history: bytes | None
    root: bytes | None


class RedisSets:
    """Every tenant's set in one Redis."""

    def __init__(self, link: RedisClient) -> None:
        self._link = link

    async def held(self, tenant_id: str) -> HeldSet:
        return HeldSet(*await self.fields(tenant_id, (AT, HEAD, HISTORY, node_field(ROOT))))

    async def fields(self, tenant_id: str, names: Sequence[bytes]) -> list[bytes | None]:
        """The values of these fields; of a key that is no hash, none."""
        if not names:
            return []
        try:
            found = await self._link.call("HMGET", set_key(tenant_id), *names)
        except RedisFault as fault:
            if not refused(fault.__cause__, "WRONGTYPE"):
                raise
            # The next move removes it.
            return [None] * len(names)
        if not isinstance(found, list) or len(found) != len(names):
            raise RedisFault("it answered HMGET with something else")
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
        """Set these fields (None removes one), then `at` and `head` where they are given, in one
        step. False where the set does not stand at `expected` any more, or where the lock of
        `token` is lost: nothing is changed then."""
        here = {name: body for name, body in fields.items() if body is not None}
        gone = [name for name, body in fields.items() if body is None]
        parts: list[Part] = [expected or b"", at, head, token, len(here)]
        parts.extend(_flat(here.items()))
        parts.extend(gone)
        answer = await self._link.script(_MOVE, _keys(tenant_id), parts)
        if not isinstance(answer, list) or len(answer) != 2 or answer[0] not in (0, 1):
            raise RedisFault("it answered the script with something else")
        return bool(answer[0])

    async def clear(self, tenant_id: str, expected: bytes | None) -> bool:
        """Remove the whole set; False where it does not stand at `expected` any more."""
        answer = await self._link.script(_CLEAR, _keys(tenant_id)[:1], (expected or b"",))
        return bool(answer == 1)

    async def lock(self, tenant_id: str, token: str) -> bool:
        """Whether the tenant's rebuild is ours from now on. Who says nothing for `LOCK_MS` loses
        it, and then `move` refuses what is late. A token is `<process>:<attempt>`."""
        process = token.partition(":")[0] + ":"
        return bool(await self._link.script(_LOCK, _keys(tenant_id)[2:], (token, process)) == 1)

    async def unlock(self, tenant_id: str, token: str) -> None:
        await self._link.script(_UNLOCK, _keys(tenant_id)[2:], (token,))


def at_query(tenant_id: str) -> Command:
    """Asks where the set stands."""
    return ("HGET", set_key(tenant_id), AT)


def _keys(tenant_id: str) -> tuple[str, str, str]:
    return set_key(tenant_id), changes_key(tenant_id), f"{set_key(tenant_id)}:lock"


def _flat(pairs: Iterable[tuple[bytes, bytes]]) -> Iterable[bytes]:
    for pair in pairs:
        yield from pair
