"""Collects the cosignatures of witnesses for published checkpoints. Speaks C2SP `tlog-witness`
(`add-checkpoint`) with each of them, in requests that are bounded in time and bytes.

A cosignature is put into the checkpoint store, then merged into the published note. If we die in
between, the next run asks again, and a witness cosigns the same checkpoint again.

INVARIANT: nothing waits for a witness. Each has a task of its own, which takes the latest
checkpoint of each log; what was published meanwhile replaces what is still waiting. A checkpoint
that a witness missed gets its cosignature only indirectly, by the next one.

INVARIANT: a log that the witness refuses, or has never heard of, delays no other log: each has a
pause of its own.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar

from control_api.checkpoint_store.stored_note import CheckpointStore, CosignedNote
from control_api.log.checkpoints.agreement import merged
from control_api.log.proofs import prove_growth
from control_api.metrics.metrics import COSIGNED, FAILED, WitnessingMetrics
from control_api.security.egress import WitnessAddress
from control_api.store.queries import checkpoints
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.canonical import b64
from policies.ground.errors import SluiceError
from policies.trail.checkpoint import BadNote, split_origin
from policies.trail.proofs import signed_note
from policies.trail.proofs.nodes import MAX_SIZE
from policies.trail.proofs.signed_note import Signature, VerifierKey

TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 3.0
MAX_ANSWER = 64 * 1024
FUTURE_SECONDS = 300
"""Seconds that a witness's clock may be ahead of ours."""


class WitnessRefusal(StrEnum):
    """The reasons for which a witness's cosignature is missing. The metric of answers has them as
    labels."""

    unreachable = "unreachable"
    """The witness did not answer in time, or answered 5xx."""
    unknown = "unknown"
    """The witness answered 404: its operator has not configured this origin."""
    unsigned = "unsigned"
    """The witness answered 403: it has another key of the log."""
    inconsistent = "inconsistent"
    """The witness answered 422: the checkpoint does not continue the one that it cosigned last. The
    log was rewritten, or the witness errs."""
    ahead = "ahead"
    """The witness answered 409: it has cosigned more entries than the log has."""
    unusable = "unusable"
    """The answer does not follow the protocol, or its cosignature does not verify."""


_BY_STATUS = {
    403: WitnessRefusal.unsigned,
    404: WitnessRefusal.unknown,
    422: WitnessRefusal.inconsistent,
}


class NotCosigned(Exception):
    """the witness has not cosigned the checkpoint"""

    def __init__(self, refusal: WitnessRefusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class OtherSize(NamedTuple):
    """The witness's answer that it cosigned last at another `size` than the request assumed. The
    consistency proof has to begin at that size."""

    size: int


class WitnessClient:
    """Sends checkpoints to one witness. `session` comes from `open_session`."""

    def __init__(self, address: WitnessAddress, session: ClientSession) -> None:
        self.key = address.key
        self._url = f"{address.url}/add-checkpoint"
        self._session = session

    async def submit(
        self, note: str, old: int, proof: list[bytes], now: int
    ) -> Signature | OtherSize:
        """Ask the witness to cosign `note`, with a consistency proof from size `old`. Return its
        verified cosignature, or the size that it expects instead of `old`. `now` is in seconds.
        Raises `NotCosigned`."""
        body = "\n".join([f"old {old}", *map(b64, proof), "", note]).encode()
        try:
            # Redirects lead to an address that the operator has not chosen.
            async with self._session.post(self._url, data=body, allow_redirects=False) as answer:
                raw = b""
                while chunk := await answer.content.readany():
                    raw += chunk
                    if len(raw) > MAX_ANSWER:
                        raise NotCosigned(WitnessRefusal.unusable, f"more than {MAX_ANSWER} bytes")
                return self._read(answer.status, raw, note, now)
        except TimeoutError:
            raise NotCosigned(
                WitnessRefusal.unreachable, f"no answer within {TOTAL_SECONDS:g} s"
            ) from None
        except (ClientError, OSError) as error:
            raise NotCosigned(
                WitnessRefusal.unreachable, str(error) or type(error).__name__
            ) from error

    def _read(self, status: int, raw: bytes, note: str, now: int) -> Signature | OtherSize:
        if status == 200:
            return self._verified(raw, note, now)
        if status == 409:
            return _size(raw)
        if status >= 500:
            raise NotCosigned(WitnessRefusal.unreachable, f"it answered {status}")
        refusal = _BY_STATUS.get(status, WitnessRefusal.unusable)
        raise NotCosigned(refusal, f"it answered {status}: {_message(raw)}")

    def _verified(self, raw: bytes, note: str, now: int) -> Signature:
        """Return the witness's own signature line, verified. Lines of other keys are ignored, as
        the protocol asks."""
        try:
            added = signed_note.parse(note + raw.decode())
            if added.text != signed_note.parse(note).text:
                raise BadNote("the answer is not made of signature lines")
            found = signed_note.verified_cosignatures(added, [self.key])
        except (BadNote, UnicodeDecodeError) as error:
            raise NotCosigned(WitnessRefusal.unusable, str(error)) from error
        if not found:
            raise NotCosigned(WitnessRefusal.unusable, f"no cosignature by `{self.key.name}`")
        if not 0 < found[0].signed_at <= now + FUTURE_SECONDS:
            raise NotCosigned(
                WitnessRefusal.unusable,
                f"the cosignature's time is {found[0].signed_at}, now it is {now}",
            )
        lines = signed_note.matches(added, [self.key], self.key.type)
        return lines[-1][0]


def open_session() -> ClientSession:
    """Return an HTTP session for the requests to all witnesses: without proxies from the
    environment and without cookies. Connections stay open, as the protocol asks."""
    return ClientSession(
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        headers={"User-Agent": "sluice", "Content-Type": "application/octet-stream"},
        timeout=ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS),
    )


def _size(raw: bytes) -> OtherSize:
    text = raw[:32].removesuffix(b"\n")
    size = int(text) if text.isdigit() else MAX_SIZE + 1
    if size > MAX_SIZE or str(size).encode() + b"\n" != raw:
        raise NotCosigned(WitnessRefusal.unusable, f"it answered 409 without a size: {raw[:32]!r}")
    return OtherSize(size)


def _message(raw: bytes) -> str:
    """Return the message in a witness's answer, at most 200 characters. `sluice witness` sends
    JSON, others plain text."""
    try:
        return repr(orjson.loads(raw)["message"])[:200]
    except (ValueError, LookupError, TypeError):
        return repr(raw[:200])


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""The first and the longest pause (seconds) before a witness that has not cosigned a log's
checkpoint is asked again."""


@dataclass(slots=True)
class _Waiting:
    """A log's checkpoint that waits for a cosignature. `since` is when the log began to lack one,
    as `monotonic` counts it."""

    made: StoredCheckpoint
    since: float
    pause: float


class WitnessQueue:
    """The checkpoints that wait for one witness. `monotonic` counts seconds. Between `next` and
    `done` or `retry`, `next` does not return the same log again."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[str, _Waiting] = {}
        self._turns: list[tuple[float, int, str]] = []
        """The time at which each log is due, earliest first. A heap, since there may be thousands
        of logs."""
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def put(self, tenant_id: str, made: StoredCheckpoint) -> None:
        """Queue a log's newer checkpoint. If an older one of the same log is waiting, replace it,
        but keep its turn and its pause."""
        waiting = self._waiting.get(tenant_id)
        if waiting is None:
            now = self._monotonic()
            self._waiting[tenant_id] = _Waiting(made, now, FIRST_PAUSE)
            self._due(tenant_id, now)
            self._changed.set()
        else:
            waiting.made = made

    async def next(self) -> tuple[str, StoredCheckpoint]:
        """Wait until a log is due, and return its tenant and its checkpoint."""
        while True:
            self._changed.clear()
            left = self._turns[0][0] - self._monotonic() if self._turns else None
            if left is not None and left <= 0:
                tenant_id = heapq.heappop(self._turns)[2]
                return tenant_id, self._waiting[tenant_id].made
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def done(self, tenant_id: str, made: StoredCheckpoint) -> None:
        """Finish the turn of a log: `made` needs no further request. A newer checkpoint that
        arrived meanwhile is queued."""
        waiting = self._waiting.pop(tenant_id)
        if waiting.made is not made:
            self.put(tenant_id, waiting.made)

    def retry(self, tenant_id: str) -> None:
        waiting = self._waiting[tenant_id]
        self._due(tenant_id, self._monotonic() + waiting.pause)
        waiting.pause = min(2 * waiting.pause, LONGEST_PAUSE)

    def waits(self) -> float:
        """Return for how many seconds the log that waits longest has lacked a cosignature; 0 if
        none waits."""
        since = min((each.since for each in self._waiting.values()), default=None)
        return 0.0 if since is None else self._monotonic() - since

    def _due(self, tenant_id: str, when: float) -> None:
        heapq.heappush(self._turns, (when, next(self._order), tenant_id))


MAX_SUBMISSIONS = 3
"""The number of times that a checkpoint is submitted, each with a proof from another size, because
another replica may submit to the same witness in between."""
_log = logging.getLogger("sluice.witnesses")


class Cosigner:
    """Asks every witness to cosign the published checkpoints. `publics` returns the keys that may
    have signed the log's notes."""

    def __init__(
        self,
        store: Store,
        notes: CheckpointStore,
        addresses: Collection[WitnessAddress],
        publics: Callable[[], Awaitable[Collection[bytes]]],
        metrics: WitnessingMetrics,
    ) -> None:
        self._store = store
        self._notes = notes
        self._publics = publics
        self._metrics = metrics
        self._keys = tuple(each.key for each in addresses)
        self._queues = {each: WitnessQueue(store.clock.monotonic) for each in addresses}
        for address, queue in self._queues.items():
            metrics.watch(address.key.name, (COSIGNED, FAILED, *WitnessRefusal), queue.waits)

    def offer(self, tenant_id: str, made: StoredCheckpoint) -> None:
        for address, queue in self._queues.items():
            if not merged(made.note, (), (address.key,))[1]:
                queue.put(tenant_id, made)

    async def run(self) -> None:
        """Ask the witnesses for as long as the app runs."""
        async with open_session() as session, asyncio.TaskGroup() as group:
            for address, queue in self._queues.items():
                group.create_task(self._follow(address, queue, session))

    async def _follow(
        self, address: WitnessAddress, queue: WitnessQueue, session: ClientSession
    ) -> None:
        client, sizes = WitnessClient(address, session), dict[str, int]()
        while True:
            tenant_id, made = await queue.next()
            try:
                away = await self._submit(client, sizes, tenant_id, made)
            except SluiceError as error:  # the database, or a tree that can't be proven
                away = True
                self._report(client.key, made, FAILED, str(error))
            except Exception:  # noqa: BLE001  one log's fault must not stop the others
                away = True
                _log.exception("witness `%s` could not be asked", client.key.name)
            if away:
                queue.retry(tenant_id)
            else:
                queue.done(tenant_id, made)

    async def _submit(
        self, client: WitnessClient, sizes: dict[str, int], tenant_id: str, made: StoredCheckpoint
    ) -> bool:
        """Ask for a cosignature of `made`, store it, and report the outcome. Returns whether to ask
        again later."""
        try:
            line = await self._cosignature(client, sizes, tenant_id, made)
        except NotCosigned as error:
            self._report(client.key, made, error.refusal, str(error))
            # The operator of the witness may still add the log: everything but a contradiction is
            # tried again.
            return error.refusal not in (WitnessRefusal.inconsistent, WitnessRefusal.ahead)
        if line is not None:
            await self._store_line(tenant_id, made, line)
            sizes[made.origin] = made.size
            self._report(client.key, made, COSIGNED, "")
        return False

    async def _cosignature(
        self, client: WitnessClient, sizes: dict[str, int], tenant_id: str, made: StoredCheckpoint
    ) -> Signature | None:
        """Return the witness's cosignature of `made`; None if the witness has already cosigned a
        newer checkpoint for another replica."""
        for _ in range(MAX_SUBMISSIONS):
            old = min(sizes.get(made.origin, 0), made.size)
            proof = await self._proof(tenant_id, old, made.size)
            answer = await client.submit(
                made.note, old, proof, self._store.clock.now() // 1_000_000
            )
            if not isinstance(answer, OtherSize):
                return answer
            sizes[made.origin] = answer.size
            if answer.size > made.size:
                async with self._store.reading(tenant_id) as connection:
                    last = await checkpoints.latest(connection, tenant_id)
                if last is not None and last.origin == made.origin and last.size >= answer.size:
                    return None
                text = f"it has cosigned {answer.size} entries, the log has {made.size}"
                raise NotCosigned(WitnessRefusal.ahead, text)
        raise NotCosigned(WitnessRefusal.unreachable, "it names another size each time")

    async def _proof(self, tenant_id: str, old: int, size: int) -> list[bytes]:
        if old in (0, size):
            return []
        grown = await prove_growth(self._store, tenant_id, old, size, await self._publics())
        return grown.hashes

    async def _store_line(self, tenant_id: str, made: StoredCheckpoint, line: Signature) -> None:
        note, _ = merged(made.note, (line,), self._keys)
        incarnation = split_origin(made.origin)[1]
        outside = CosignedNote(line.key_id.hex(), incarnation, made.size, note)
        await asyncio.to_thread(self._notes.put_cosigned, tenant_id, outside)

        async def work(tx: Transaction) -> None:
            stored = await checkpoints.at(tx.connection, tenant_id, made.size)
            if stored is not None and stored.origin == made.origin:
                note, count = merged(stored.note, (line,), self._keys)
                await checkpoints.cosigned(tx.connection, tenant_id, stored.number, note, count)

        await self._store.write(tenant_id, work)

    def _report(self, key: VerifierKey, made: StoredCheckpoint, outcome: str, why: str) -> None:
        """Count one answer in the metric, and write a log line if this witness's outcome for this
        log has changed."""
        changed = self._metrics.answered(key.name, made.origin, outcome)
        if not changed:
            return
        if outcome in (WitnessRefusal.inconsistent, WitnessRefusal.ahead):
            _log.error(
                "witness `%s` refuses `%s` at %d entries, as a log that was rewritten: %s",
                key.name, made.origin, made.size, why,
            )  # fmt: skip
        elif outcome == COSIGNED:
            _log.info("witness `%s` cosigns `%s`", key.name, made.origin)
        else:
            _log.warning("witness `%s` does not cosign `%s`: %s", key.name, made.origin, why)
