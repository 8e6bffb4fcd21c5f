"""Copies session claims and revocations to Redis for the sidecars.

    send, after the commit > batch > one script per session, many in a pipeline

This only saves requests: a sidecar that does not find a session in Redis claims it through the API,
and the policy set carries revocations too. A late claim never undoes a revocation.
"""

import asyncio
import logging
from collections import deque

from control_api.metrics.labels import SessionPush
from control_api.metrics.metrics import RedisMetrics
from control_api.policy.publishing.push_queue import FIRST_PAUSE, LONGEST_PAUSE
from control_api.policy.publishing.redis_client import Part, RedisClient, RedisFault, Script
from control_api.policy.publishing.redis_sets import SetSigner
from control_api.store.errors import WriteFault
from control_api.store.group_commit import start_task
from control_api.store.queries.session_rows import SessionRow
from policies.definitions.model import SessionState
from policies.ground.process.outage_logger import OutageLogger
from policies.sets.redis_keys import session_key
from policies.sets.signed_head import Claim

BATCH = 256
MAX_WAITING = 8192
"""The most sessions that may wait to be written to Redis. If there are more, the oldest are
dropped."""
KEPT_MS = 86_400_000
"""The milliseconds for which a session stays in Redis after it expires, in case a sidecar's clock
is behind."""
RANK: dict[SessionState, int] = {"active": 1, "expired": 1, "revoked": 2}

# KEYS: session. ARGV: rank, the claim, its expiry (milliseconds since 1970), the store's epoch.
# Keeps the higher rank of the same epoch, so a late claim can't undo a revocation. A key of another
# type is not ours and is replaced.
_WRITE = Script("""\
local held = redis.pcall('HMGET', KEYS[1], 'rank', 'epoch')
if held.err then
  redis.call('DEL', KEYS[1])
elseif held[1] == '2' and held[2] == ARGV[4] and ARGV[1] == '1' then
  return 0
end
redis.call('HSET', KEYS[1], 'rank', ARGV[1], 'c', ARGV[2], 'epoch', ARGV[4])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
""")
_log = logging.getLogger("sluice.publishing")
_Waiting = tuple[str, SessionRow, SessionState]


class SessionClaims:
    """Queues the claims and revocations of sessions, and writes them to Redis."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        client: RedisClient,
        signer: SetSigner,
        metrics: RedisMetrics,
    ) -> None:
        self._group, self._client = group, client
        self._signer, self._metrics = signer, metrics
        self._waiting: deque[_Waiting] = deque()
        self._sending = self._closed = False
        self._outage = OutageLogger(
            _log,
            f"sessions can't be written to Redis at {client.address}",
            f"sessions are written to Redis at {client.address} again",
        )

    def send(self, tenant_id: str, row: SessionRow, state: SessionState) -> None:
        """Queue the session as it was committed. This neither waits nor raises."""
        if len(self._waiting) >= MAX_WAITING:
            # Only a shortcut is lost: sidecars ask the API for sessions that they don't find, and
            # the policy set has the revocations.
            self._waiting.popleft()
            self._count(SessionPush.dropped)
        self._waiting.append((tenant_id, row, state))
        # During an outage only `run` retries, with pauses: each new session would fail at once.
        if not self._sending and not self._outage.ongoing:
            self._sending = True
            try:
                start_task(self._group, self._send())
            except WriteFault:
                self._sending = False

    @property
    def busy(self) -> bool:
        """True while sessions are being written."""
        return self._sending

    def close(self) -> None:
        """Stop retrying failed writes."""
        self._closed = True

    async def run(self) -> None:
        """Retry failed writes until `close` is called."""
        pause = FIRST_PAUSE
        while not self._closed:
            await asyncio.sleep(pause)
            if self._sending or not self._waiting:
                pause = FIRST_PAUSE
                continue
            self._sending = True
            await self._send()
            pause = min(LONGEST_PAUSE, 2 * pause) if self._outage.ongoing else FIRST_PAUSE

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH))]
                try:
                    calls = [self._call(*each) for each in batch]
                    answers = await self._client.scripts(_WRITE, calls)
                    if refused := [each for each in answers if each not in (0, 1)]:
                        raise RedisFault(f"it refused a session: {str(refused[0])[:200]}")
                except RedisFault as fault:
                    # Put the batch back in front of newer sessions, in its order.
                    self._waiting.extendleft(reversed(batch))
                    self._outage.failing(fault)
                    return
                self._outage.recovered()
                for answer in answers:
                    self._count(SessionPush.written if answer == 1 else SessionPush.older)
        finally:
            self._sending = False

    def _call(
        self, tenant_id: str, row: SessionRow, state: SessionState
    ) -> tuple[tuple[str], tuple[Part, ...]]:
        owner = (row.agent_role, row.agent_id, row.expires_at)
        claim = Claim(tenant_id, self._signer.epoch, row.session_id, state, *owner)
        sealed = claim.sealed(self._signer.ring.signer)
        expiry = row.expires_at // 1000 + KEPT_MS
        key = session_key(tenant_id, row.session_id)
        return (key,), (RANK[state], sealed, expiry, self._signer.epoch)

    def _count(self, outcome: SessionPush) -> None:
        self._metrics.sessions.labels(outcome).inc()
