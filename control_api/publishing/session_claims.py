"""Whose a session is, brought to Redis for the sidecars. Only spares them a request: a sidecar that
does not find a session claims it here, and a revocation goes by the policy set as well.

    told, after the commit > gathered > one script each, many at a time

Of two states of a session the later wins, whichever comes last: revoked is never undone.
"""

import asyncio
import logging
from collections import deque
from typing import Any

from control_api.metrics.metrics import Instruments, SessionPush
from control_api.publishing.push_queue import FIRST_PAUSE, LONGEST_PAUSE
from control_api.publishing.redis_client import Part, RedisClient, RedisFault, Script
from control_api.publishing.set_signer import SetSigner
from control_api.publishing.state_logger import OutageLogger
from control_api.store.errors import WriteFault
from control_api.store.group_commit import start_task
from control_api.store.queries.sessions import SessionRow
from policies.definitions.model import SessionState
from policies.sets.redis_keys import session_key
from policies.sets.signed_head import Claim

AT_ONCE = 256
WAITING = 8192
"""Sessions that wait for Redis; past that the oldest are dropped."""
KEPT_MS = 86_400_000
"""How long after its end a session stays in Redis: a sidecar's clock may be behind."""
RANK: dict[SessionState, int] = {"active": 1, "expired": 1, "revoked": 2}

# KEYS: session. ARGV: rank, the claim, when it goes (milliseconds), the store's epoch.
_TELL = Script("""\
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
Told = tuple[str, SessionRow, SessionState]


class SessionClaims:
    """Those that are on their way."""

    def __init__(
        self, group: asyncio.TaskGroup, link: RedisClient, seal: SetSigner, instruments: Instruments
    ) -> None:
        self._group = group
        self._link = link
        self._seal = seal
        self._instruments = instruments
        self._waiting: deque[Told] = deque()
        self._sending = False
        self._closed = False
        self._trouble = OutageLogger(_log, f"sessions can't be told to Redis at {link.place}")

    def tell(self, tenant_id: str, row: SessionRow, state: SessionState) -> None:
        """The session as it was committed. Neither waits nor raises."""
        if len(self._waiting) >= WAITING:
            self._waiting.popleft()
            self._count(SessionPush.dropped)
        self._waiting.append((tenant_id, row, state))
        if not self._sending and not self._trouble.lasts:
            self._sending = True
            try:
                start_task(self._group, self._send())
            except WriteFault:
                self._sending = False

    @property
    def busy(self) -> bool:
        """Whether any is on its way."""
        return self._sending

    def close(self) -> None:
        """The service stops."""
        self._closed = True

    async def run(self) -> None:
        """Try again what failed, for ever."""
        pause = FIRST_PAUSE
        while not self._closed:
            await asyncio.sleep(pause)
            if self._sending or not self._waiting:
                pause = FIRST_PAUSE
                continue
            self._sending = True
            await self._send()
            pause = min(LONGEST_PAUSE, 2 * pause) if self._trouble.lasts else FIRST_PAUSE

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), AT_ONCE))]
                try:
                    answers = await self._link.scripts(_TELL, [self._call(*told) for told in batch])
                    _refuse(answers)
                except RedisFault as fault:
                    # In the same order, before what came meanwhile.
                    self._waiting.extendleft(reversed(batch))
                    self._trouble.is_(fault)
                    return
                self._trouble.over()
                for answer in answers:
                    self._count(SessionPush.written if answer == 1 else SessionPush.older)
        finally:
            self._sending = False

    def _call(
        self, tenant_id: str, row: SessionRow, state: SessionState
    ) -> tuple[tuple[str], tuple[Part, ...]]:
        claim = Claim(
            tenant_id,
            self._seal.epoch,
            row.session_id,
            state,
            row.agent_role,
            row.agent_id,
            row.expires_at,
        )
        sealed = claim.sealed(self._seal.ring.signer)
        until = row.expires_at // 1000 + KEPT_MS
        return (session_key(tenant_id, row.session_id),), (
            RANK[state],
            sealed,
            until,
            self._seal.epoch,
        )

    def _count(self, outcome: SessionPush) -> None:
        self._instruments.session_pushes.labels(outcome).inc()


def _refuse(answers: list[Any]) -> None:
    for answer in answers:
        if answer not in (0, 1):
            raise RedisFault(f"it refused a session: {str(answer)[:200]}")
