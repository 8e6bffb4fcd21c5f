"""Answers sidecars that ask whether their policy set is current, and handles their reports of
missing or wrong fields. Every replica answers every request.

    read requests > gather > query the store > sign a heartbeat for each tenant > send

INVARIANT: the store is queried after the requests are read. A heartbeat attests the revision at a
time after its nonces were drawn; querying first could attest a revision that is already stale. If
the store does not answer, no heartbeat is sent, and sidecars deny once their last one is too old.

Each tenant has its own stream of reports: the names of its sessions and roles must not reach other
tenants. Anyone who can reach Redis may write to the streams, so malformed entries are skipped.
"""

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from control_api.metrics.labels import Challenge
from control_api.metrics.metrics import RedisMetrics
from control_api.policy.publishing.push_queue import FIRST_PAUSE, LONGEST_PAUSE, PushQueue
from control_api.policy.publishing.redis_client import (
    Command,
    Id,
    Part,
    RedisClient,
    RedisFault,
    entry_id,
    far_ahead,
    unusable,
)
from control_api.policy.publishing.redis_sets import SetSigner, at_query
from control_api.store.queries import tenant_rows
from control_api.store.store import Store
from policies.ground.errors import Unavailable
from policies.ground.process.outage_logger import OutageLogger
from policies.sets.redis_keys import CHALLENGES, beats_key, doubts_key
from policies.sets.signed_head import Heartbeat

MAX_NONCES = 1000
"""The most nonces that one heartbeat answers."""
_MAX_TENANT_ID = 1024
"""The most bytes in a tenant id that is accepted in a request."""
_NONCE = re.compile(rb"[A-Za-z0-9_.:+/=-]{8,128}\Z")


@dataclass(slots=True)
class HeartbeatRequests:
    """The pending heartbeat requests of one tenant: the nonces to answer. `repairs` is True if its
    sidecars also report fields of the policy set to repair."""

    nonces: list[str] = field(default_factory=list)
    repairs: bool = False


def parse_requests(entries: Iterable[object]) -> tuple[dict[str, HeartbeatRequests], int]:
    """Parse entries of the request stream. Return the requests by tenant, and the number of
    malformed entries."""
    by_tenant: defaultdict[str, HeartbeatRequests] = defaultdict(HeartbeatRequests)
    unreadable = 0
    for entry in entries:
        parsed = _parse(entry)
        if parsed is None:
            unreadable += 1
            continue
        tenant_id, nonce, repairs = parsed
        requests = by_tenant[tenant_id]
        # Further nonces are dropped, so that a flood of requests can't make a heartbeat huge.
        if len(requests.nonces) < MAX_NONCES:
            requests.nonces.append(nonce)
        requests.repairs |= repairs
    return dict(by_tenant), unreadable


def _parse(entry: object) -> tuple[str, str, bool] | None:
    if not isinstance(entry, dict):
        return None
    tenant, nonce = entry.get(b"t"), entry.get(b"n")
    # PostgreSQL would refuse a NUL in the query for the tenants' revisions.
    if not isinstance(tenant, bytes) or not 0 < len(tenant) <= _MAX_TENANT_ID or b"\0" in tenant:
        return None
    if not isinstance(nonce, bytes) or not _NONCE.match(nonce):
        return None
    try:
        return tenant.decode(), nonce.decode(), b"m" in entry
    except UnicodeDecodeError:
        return None


KEPT_MS = 60_000
"""The milliseconds for which a stream of reports is kept after it was last read. Sidecars report
again what is still wrong."""
MAX_ENTRIES = 16
"""The most reports that are read, newest first, and the most fields that are taken from one
report."""
_MAX_BYTES = MAX_ENTRIES * 1024
# Anyone who can reach Redis may write a report, so only names that a set can contain are looked up.
_FIELD = re.compile(
    r"head\Z|d/[^\0]{1,600}\Z|n/(?:root|[0-9a-f]{2}(?:\.[0-9a-f]{2})?)\Z", re.DOTALL
)


def report_commands(tenant_id: str) -> tuple[Command, Command]:
    """Return two Redis commands: one reads the tenant's reports of wrong fields, the other lets
    their stream expire."""
    # The stream is not deleted after the read, because every replica reads it. Repairing a field
    # twice does no harm.
    key = doubts_key(tenant_id)
    return ("XREVRANGE", key, "+", "-", "COUNT", MAX_ENTRIES), ("PEXPIRE", key, KEPT_MS)


def suspect_fields(answer: object) -> set[bytes]:
    """Return the fields named in the reports, which are the answer to the first of
    `report_commands`. Fields beyond the limits are dropped, since sidecars report them again."""
    found: set[bytes] = set()
    for _, fields in _entries(answer):
        if isinstance(fields, dict):
            found.update(_fields(fields.get(b"f")))
    return found


def newest_report(answer: object) -> Id | None:
    """Return the id of the newest report, or None if the stream is empty. `answer` is that of the
    first of `report_commands`."""
    return next((entry_id(each) for each, _ in _entries(answer)), None)


def _entries(answer: object) -> list[tuple[object, object]]:
    if not isinstance(answer, list):
        return []
    return [(e[0], e[1]) for e in answer if isinstance(e, tuple | list) and len(e) == 2]


def _fields(listed: object) -> list[bytes]:
    if not isinstance(listed, bytes) or len(listed) > _MAX_BYTES:
        return []
    try:
        names = orjson.loads(listed)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(names, list):
        return []
    fields = [name for name in names[:MAX_ENTRIES] if isinstance(name, str)]
    return [name.encode() for name in fields if _FIELD.match(name)]


BLOCK_MS = 1000
GATHER_SECONDS, LONGEST_GATHER = 0.01, 0.25
"""The shortest and the longest time for which requests are gathered. Requests that arrive within it
share a heartbeat, which every sidecar of the tenant gets. The longest is well below a sidecar's
interval between requests."""
GATHER_PER_REQUEST = 0.05
"""The seconds that the next round gathers for each request of this one, between the two limits
above. So rounds grow longer at more than 20 requests a second. After a round that could not read
all requests, the next one is short."""
MAX_READ = MAX_NONCES // 2
"""The most requests that one command reads. A round reads twice, so that one heartbeat can answer
all of its requests."""
REQUESTS_KEPT = 10_000
"""The approximate number of requests, of all tenants, that Redis keeps."""
HEARTBEATS_KEPT = 64
"""The approximate number of heartbeats of one tenant that Redis keeps."""
BEFORE_MS = 5000
"""The age in milliseconds up to which a replica that starts also answers earlier requests."""
_log = logging.getLogger("sluice.publishing")


class Heartbeats:
    """Answers the heartbeat requests of all tenants, in one replica. `_last` is the id of the
    newest request that was read; it is empty until the end of the stream is known."""

    def __init__(
        self,
        client: RedisClient,
        store: Store,
        pushes: PushQueue,
        signer: SetSigner,
        metrics: RedisMetrics,
        now: Callable[[], int],
    ) -> None:
        self._client, self._store, self._pushes = client, store, pushes
        self._signer, self._metrics, self._now = signer, metrics, now
        self._last, self._gather, self._closed = "", GATHER_SECONDS, False
        self._outage = OutageLogger(
            _log,
            f"heartbeat requests can't be read from Redis at {client.address}",
            f"heartbeat requests are read from Redis at {client.address} again",
        )
        self._store_outage = OutageLogger(
            _log, "heartbeat requests can't be answered", "heartbeat requests are answered again"
        )

    async def run(self) -> None:
        """Answer requests until `close` is called, and retry while Redis is down."""
        pause = FIRST_PAUSE
        while not self._closed:
            try:
                await self.once()
            except RedisFault as fault:
                self._outage.failing(fault)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                self._outage.recovered()
                pause = FIRST_PAUSE

    def close(self) -> None:
        """Stop after the current round."""
        self._closed = True

    async def once(self) -> None:
        """Answer the requests that arrive within `BLOCK_MS`, in one round."""
        if not self._last:
            await self._find_position()
        entries = await self._read("BLOCK", BLOCK_MS)
        if not entries:
            await self._find_position()
            return
        # Wait for more requests: one signature and one query then answer all sidecars of a tenant.
        await asyncio.sleep(self._gather)
        more = await self._read()
        entries += more
        wanted = len(entries) * GATHER_PER_REQUEST if len(more) < MAX_READ else 0.0
        self._gather = min(LONGEST_GATHER, max(GATHER_SECONDS, wanted))
        requests, unreadable = parse_requests(entries)
        self._count(Challenge.unreadable, unreadable)
        await self._answer(requests)

    async def _answer(self, requests: dict[str, HeartbeatRequests]) -> None:
        if not requests:
            return
        try:
            async with self._store.reading_all_tenants() as connection:
                states = await tenant_rows.states(connection, list(requests))
        except Unavailable as error:
            self._store_outage.failing(error)
            self._count(Challenge.unanswered, _nonces(requests))
            return
        self._store_outage.recovered()
        revisions = {tenant_id: r for tenant_id, (r, active) in states.items() if active}
        # INVARIANT: only active tenants get a heartbeat, so the sidecars of a deactivated one deny.
        known = {each: requests.pop(each) for each in revisions if each in requests}
        self._count(Challenge.foreign, _nonces(requests))
        await self._send(known, revisions)
        self._count(Challenge.answered, _nonces(known))

    async def _send(
        self, requests: dict[str, HeartbeatRequests], revisions: dict[str, int]
    ) -> None:
        answers = iter(await self._client.many(self._commands(requests, revisions)))
        failed: list[Exception] = []
        for tenant_id, each in requests.items():
            added, at = next(answers), next(answers)
            if isinstance(added, Exception):
                # Raise it only after the other tenants' answers have been processed.
                await self._delete_unusable(beats_key(tenant_id), added)
                failed.append(added)
            suspect: set[bytes] = set()
            if each.repairs:
                reported, _ = next(answers), next(answers)
                await self._delete_unusable_reports(doubts_key(tenant_id), reported)
                suspect = suspect_fields(reported)
            expected = self._signer.at(revisions[tenant_id])
            # A set may be behind because its push is under way, and will be current in a moment.
            if suspect or (at != expected and not self._pushes.pushing(tenant_id)):
                self._pushes.recheck(tenant_id, suspect)
        if failed:
            raise RedisFault(f"it accepts no heartbeat: {str(failed[0])[:200]}")

    def _commands(
        self, requests: dict[str, HeartbeatRequests], revisions: dict[str, int]
    ) -> list[Command]:
        """Return the Redis commands of a round. For each tenant: add its heartbeat, read its set's
        revision, and read its reports of wrong fields if it has any."""
        commands: list[Command] = []
        for tenant_id, each in requests.items():
            at = (self._signer.epoch, revisions[tenant_id], self._now())
            beat = Heartbeat(tenant_id, *at, tuple(each.nonces)).sealed(self._signer.ring.signer)
            key = beats_key(tenant_id)
            commands.append(("XADD", key, "MAXLEN", "~", HEARTBEATS_KEPT, "*", "b", beat))
            # Also read the set's revision: it shows whether the set was flushed or a push was lost.
            commands.append(at_query(tenant_id))
            if each.repairs:
                commands += report_commands(tenant_id)
        return commands

    async def _read(self, *blocking: str | int) -> list[object]:
        """Read the next entries of the request stream, and return their fields."""
        # Without a consumer group every replica reads every request, so no request goes unanswered
        # if one replica dies.
        match await self._call(
            "XREAD", *blocking, "COUNT", MAX_READ, "STREAMS", CHALLENGES, self._last
        ):
            case None | []:
                return []
            case [[_, list(entries)]]:
                pass
            case _:
                raise RedisFault("its answer to XREAD has an unknown form")
        if not all(isinstance(e, tuple | list) and len(e) == 2 for e in entries):
            raise RedisFault("its answer to XREAD has an unknown form")
        if entries:
            self._last = "{}-{}".format(*entry_id(entries[-1][0]))
        return [fields for _, fields in entries]

    async def _find_position(self) -> None:
        """Set `_last`, the position from which the stream is read. If nothing was read yet, it is
        shortly before the stream's end; if the stream was replaced by one with lower ids, its
        beginning."""
        # XTRIM is a write, so a demoted server refuses it, and we reconnect to the new primary. A
        # demoted server still serves reads, but requests would reach it late or never.
        await self._call("XTRIM", CHALLENGES, "MAXLEN", "~", REQUESTS_KEPT)
        match await self._call("XREVRANGE", CHALLENGES, "+", "-", "COUNT", 1):
            case None | []:
                self._last = "0-0"
                return
            case [[bytes(entry), _]] | [(bytes(entry), _)]:
                end = entry_id(entry)
            case _:
                raise RedisFault("its answer to XREVRANGE has an unknown form")
        if far_ahead(end, self._now()):
            # With such an id at its end, the stream accepts no further entries.
            await self._client.call("DEL", CHALLENGES)
            self._last = "0-0"
        elif not self._last:
            self._last = f"{max(0, end[0] - BEFORE_MS)}-0"
        elif end < entry_id(self._last.encode()):
            self._last = "0-0"

    async def _call(self, *command: Part) -> Any:
        """Run a command on the stream of requests. If it fails because the stream is unusable,
        delete the stream."""
        try:
            return await self._client.call(*command)
        except RedisFault as fault:
            await self._delete_unusable(CHALLENGES, fault.__cause__)
            raise

    async def _delete_unusable(self, key: str, error: BaseException | None) -> None:
        if unusable(error):
            await self._client.call("DEL", key)

    async def _delete_unusable_reports(self, key: str, reported: object) -> None:
        """Delete a tenant's stream of reports if it has become unusable. The reports already read
        are still used."""
        # Sidecars write to this stream and can't tell us that a write failed: check its newest id.
        newest = newest_report(reported)
        if unusable(reported) or (newest is not None and far_ahead(newest, self._now())):
            await self._client.call("DEL", key)

    def _count(self, outcome: Challenge, many: int) -> None:
        self._metrics.challenges.labels(outcome).inc(many)


def _nonces(requests: dict[str, HeartbeatRequests]) -> int:
    return sum(len(each.nonces) for each in requests.values())
