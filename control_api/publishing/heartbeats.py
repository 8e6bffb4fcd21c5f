"""Answers sidecars that ask whether their set is still the store's. Every replica does, for itself.

    challenges read > gathered > the store asked > a heartbeat signed for each tenant > sent

INVARIANT: the store is asked after the challenges were read. A heartbeat says how the set stood
after its nonces were drawn: asked before, it would call a set fresh that is not. Where the store
does not answer, no heartbeat is sent, and sidecars deny once theirs are too old.
"""

import asyncio
import logging
from collections.abc import Callable

from control_api.metrics.metrics import Challenge, Instruments
from control_api.publishing import repair_requests as doubts
from control_api.publishing.heartbeat_requests import HeartbeatRequests, gathered
from control_api.publishing.push_queue import FIRST_PAUSE, LONGEST_PAUSE, PushQueue
from control_api.publishing.redis_client import Command, RedisClient, RedisFault
from control_api.publishing.redis_sets import at_query
from control_api.publishing.set_signer import SetSigner
from control_api.publishing.state_logger import OutageLogger
from control_api.publishing.stream_ids import entry_id, far_ahead, spoiled
from control_api.store.queries import tenants
from control_api.store.store import Store
from policies.ground.errors import Unavailable
from policies.sets.redis_keys import CHALLENGES, beats_key, doubts_key
from policies.sets.signed_head import Heartbeat

BLOCK_MS = 1000
GATHER = 0.01
"""Seconds: what comes within them is answered together."""
MOST = 1000
CHALLENGES_KEPT = 10_000
KEPT = 64
"""Heartbeats of a tenant that Redis keeps, about."""
BEFORE_MS = 5000
"""Challenges that are answered although they came before this replica began to read."""
_log = logging.getLogger("sluice.publishing")


class Heartbeats:
    """Reads on from `_last`, an id of the stream; empty until it was looked up."""

    def __init__(
        self,
        link: RedisClient,
        store: Store,
        pushes: PushQueue,
        seal: SetSigner,
        instruments: Instruments,
        now: Callable[[], int],
    ) -> None:
        self._link = link
        self._store = store
        self._pushes = pushes
        self._seal = seal
        self._instruments = instruments
        self._now = now
        self._last = ""
        self._closed = False
        self._trouble = OutageLogger(_log, f"challenges can't be read from Redis at {link.place}")
        self._silent = OutageLogger(_log, "challenges can't be answered")

    async def run(self) -> None:
        """For ever; a Redis that is away is tried again."""
        pause = FIRST_PAUSE
        while not self._closed:
            try:
                await self.once()
            except RedisFault as fault:
                self._trouble.is_(fault)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                self._trouble.over()
                pause = FIRST_PAUSE

    def close(self) -> None:
        """The service stops."""
        self._closed = True

    async def once(self) -> None:
        """Answer what comes within `BLOCK_MS`."""
        if not self._last:
            await self._find_place()
        entries = await self._read("BLOCK", BLOCK_MS)
        if not entries:
            await self._find_place()
            return
        await asyncio.sleep(GATHER)
        entries += await self._read()
        asked, unreadable = gathered(entries)
        self._count(Challenge.unreadable, unreadable)
        await self._answer(asked)

    async def _answer(self, asked: dict[str, HeartbeatRequests]) -> None:
        if not asked:
            return
        try:
            async with self._store.reading_all_tenants() as connection:
                standing = await tenants.states(connection, list(asked))
        except Unavailable as error:
            self._silent.is_(error)
            self._count(Challenge.unanswered, _nonces(asked))
            return
        self._silent.over()
        live = {tenant_id: r for tenant_id, (r, active) in standing.items() if active}
        mine = {tenant_id: asked.pop(tenant_id) for tenant_id in live if tenant_id in asked}
        self._count(Challenge.foreign, _nonces(asked))
        await self._send(mine, live)
        self._count(Challenge.answered, _nonces(mine))

    async def _send(self, asked: dict[str, HeartbeatRequests], revisions: dict[str, int]) -> None:
        commands: list[Command] = []
        for tenant_id, each in asked.items():
            beat = self._beat(tenant_id, revisions[tenant_id], each)
            key = beats_key(tenant_id)
            commands.append(("XADD", key, "MAXLEN", "~", KEPT, "*", "b", beat))
            commands.append(at_query(tenant_id))
            if each.doubts:
                commands += doubts.queries(tenant_id)
        answers = iter(await self._link.many(commands))
        failed: list[Exception] = []
        for tenant_id, each in asked.items():
            added, at = next(answers), next(answers)
            if isinstance(added, Exception):
                await self._heal(beats_key(tenant_id), added)
                failed.append(added)
            doubted: set[bytes] = set()
            if each.doubts:
                told, _ = next(answers), next(answers)
                await self._heal_doubts(doubts_key(tenant_id), told)
                doubted = doubts.doubted(told)
            right = self._seal.at(revisions[tenant_id])
            # What is on its way is here in a moment; whoever sent it sees to that.
            if doubted or (at != right and not self._pushes.pushing(tenant_id)):
                self._pushes.look(tenant_id, doubted)
        if failed:
            raise RedisFault(f"it takes no heartbeat: {str(failed[0])[:200]}")

    def _beat(self, tenant_id: str, revision: int, asked: HeartbeatRequests) -> bytes:
        nonces = tuple(asked.nonces)
        beat = Heartbeat(tenant_id, self._seal.epoch, revision, self._now(), nonces)
        return beat.sealed(self._seal.ring.signer)

    async def _read(self, *blocking: str | int) -> list[object]:
        """The next entries' fields."""
        command = ("XREAD", *blocking, "COUNT", MOST, "STREAMS", CHALLENGES, self._last)
        try:
            answer = await self._link.call(*command)
        except RedisFault as fault:
            await self._heal(CHALLENGES, fault.__cause__)
            raise
        match answer:
            case None | []:
                return []
            case [[_, list(entries)]]:
                pass
            case _:
                raise RedisFault("it answered XREAD with something else")
        if not all(isinstance(e, tuple | list) and len(e) == 2 for e in entries):
            raise RedisFault("it answered XREAD with something else")
        if entries:
            self._last = "{}-{}".format(*entry_id(entries[-1][0]))
        return [fields for _, fields in entries]

    async def _find_place(self) -> None:
        """Where to read on: a little before the end at first, and from the beginning where the
        stream was replaced by one that counts from somewhere else."""
        try:
            # A write, so that a server that is a replica by now says so and is left: it would hear
            # of no challenge, or late.
            await self._link.call("XTRIM", CHALLENGES, "MAXLEN", "~", CHALLENGES_KEPT)
            newest = await self._link.call("XREVRANGE", CHALLENGES, "+", "-", "COUNT", 1)
        except RedisFault as fault:
            await self._heal(CHALLENGES, fault.__cause__)
            raise
        match newest:
            case None | []:
                self._last = "0-0"
                return
            case [[bytes(entry), _]] | [(bytes(entry), _)]:
                end = entry_id(entry)
            case _:
                raise RedisFault("it answered XREVRANGE with something else")
        if far_ahead(end, self._now()):
            # Whoever wrote that keeps others from writing.
            await self._link.call("DEL", CHALLENGES)
            self._last = "0-0"
        elif not self._last:
            self._last = f"{max(0, end[0] - BEFORE_MS)}-0"
        elif end < entry_id(self._last.encode()):
            self._last = "0-0"

    async def _heal(self, key: str, error: BaseException | None) -> None:
        if spoiled(error):
            await self._link.call("DEL", key)

    async def _heal_doubts(self, key: str, told: object) -> None:
        """Its writer does not say that it failed; what was told is read before."""
        newest = doubts.newest(told)
        if spoiled(told) or (newest is not None and far_ahead(newest, self._now())):
            await self._link.call("DEL", key)

    def _count(self, outcome: Challenge, many: int) -> None:
        self._instruments.challenges.labels(outcome).inc(many)


def _nonces(asked: dict[str, HeartbeatRequests]) -> int:
    return sum(len(each.nonces) for each in asked.values())
