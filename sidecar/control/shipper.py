"""Records from the spool to the control API's log, in order, exactly once.

    wait      until a record is on disk; then a moment more, so that a batch forms
    read      from the segment files: only what is synced ships
    send      POST /v1/sidecars/events
    believe   the receipt: signed by the log's key, about this instance, with the hash of our record
    forget    only then; a segment goes once all of it is acknowledged

Exactly once comes from the numbers, not from this loop: the control API moves its counter for an
instance in the transaction that appends, and passes over what it has. So whatever is in doubt here
(an answer that was lost, a restart) is sent again. So is what it had and has no more: a database
that was put back to an older copy holds less than was signed for, and that is rewound to.

Knows what each failure means for the records. Knows no files, and no tenants but its own.
"""

import asyncio
import logging
import random
import zlib
from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.clock import Clock
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.control.receipts import ReceiptRejected, SpoolReceipt, read_receipt
from sidecar.spool import RecordBatch, Spool
from sidecar.spool.state_logger import StateLogger

log = logging.getLogger(__name__)

PATH = "/v1/sidecars/events"
BATCH_BYTES = 1024 * 1024 - 4096
"""Bytes of records in a body of at most 1 MiB."""
BATCH_RECORDS = 512
LINGER_SECONDS = 0.05
ANSWER_SECONDS = 30.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
CHECK_SECONDS = 30.0
"""How often the control API is asked what it holds where there is nothing to ship."""
_GZIP = 31
"""`wbits` of zlib's for the gzip form."""
REFUSED_PAUSE = 5.0
"""Where the control API refuses us, not the records: somebody has to change a key or an address."""


class Shipper:
    """The loop. `tenant_id` and `log_keys` are what the policy set says, None and none while it has
    said nothing. `shipped` counts records, `failures` attempts, `conflicts` instances set aside,
    `rewinds` times that the control API had lost what it had."""

    def __init__(
        self,
        spool: Spool,
        centre: ControlClient,
        clock: Clock,
        *,
        tenant_id: Callable[[], str | None],
        log_keys: Callable[[], tuple[bytes, ...]],
        compress: bool = False,
    ) -> None:
        self.shipped = 0
        self.failures = 0
        self.conflicts = 0
        self.rewinds = 0
        self._spool = spool
        self._centre = centre
        self._monotonic = clock.monotonic
        self._tenant_id = tenant_id
        self._log_keys = log_keys
        self._compress = compress
        self._failed_in_row = 0
        self._unresolved = False
        self._trouble = StateLogger(log, "shipping")

    @property
    def trouble(self) -> str | None:
        """Why nothing ships at the moment; None where it does, or where there is nothing to."""
        return self._trouble.now

    async def run(self) -> None:
        """Never returns. No failure here is fatal: the spool keeps what can't be shipped."""
        while True:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._spool.wait_unshipped()
            except TimeoutError:
                await self._spool.trim()
                if not await self._looked():
                    continue
            if self._spool.depth < BATCH_RECORDS:
                await asyncio.sleep(LINGER_SECONDS)
            pause = await self.step()
            if pause:
                await asyncio.sleep(pause)

    async def drain(self, deadline: float) -> bool:
        """Ship what there is until `deadline` (of the monotonic clock); whether nothing is left.
        What is left ships after the next start. `run` must not run at the same time."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._monotonic())):
                while self._left():
                    pause = await self.step()
                    await asyncio.sleep(pause or (0 if self._spool.depth else LINGER_SECONDS))
        except TimeoutError:
            log.warning("%d records are left in the spool", self._spool.depth)
        return not self._left()

    def _left(self) -> bool:
        return self._spool.depth > 0 or self._spool.bytes_waiting > 0

    async def step(self) -> float:
        """One batch; how many seconds to wait before the next."""
        tenant_id, log_keys = self._tenant_id(), self._log_keys()
        if tenant_id is None or not log_keys:
            # Without the key no receipt can be believed, so nothing could be forgotten.
            return self._failed("the log's key is not known yet: no policy set was fetched")
        try:
            batch = await self._spool.batch(BATCH_BYTES, BATCH_RECORDS)
        except OSError as error:
            return self._failed(f"the spool can't be read: {error}")
        if batch is None:
            return 0.0
        try:
            answer = await self._sent(_body(batch))
        except ControlUnavailable as error:
            return await self._refused(batch, error)
        # The records are in the log. If we die here they are sent again, and passed over there.
        try:
            receipt = read_receipt(answer, batch, tenant_id, log_keys)
        except ReceiptRejected as error:
            return self._failed(f"the receipt is not believed: {error}")
        return await self._received(batch, receipt)

    async def _sent(self, body: bytes) -> dict[str, Any]:
        if not self._compress:
            return await self._centre.post(PATH, body, seconds=ANSWER_SECONDS)
        # In a thread, which lets the loop go meanwhile: a full batch takes ten milliseconds.
        packed = await asyncio.to_thread(zlib.compress, body, 1, _GZIP)
        return await self._centre.post(PATH, packed, seconds=ANSWER_SECONDS, encoding="gzip")

    async def _received(self, batch: RecordBatch, receipt: SpoolReceipt) -> float:
        n, ours = receipt.n, batch.hash
        if n < batch.last_n:
            return self._failed(f"the receipt ends at {n}, and {batch.last_n} was sent")
        if n > batch.last_n:
            # A former life shipped more and died before it could note it. Ours, or another's?
            try:
                ours = await self._spool.hash_of(batch.instance, n) or b""
            except OSError as error:
                return self._failed(f"the spool can't be read: {error}")
        if ours != receipt.hash:
            # A copied or restored directory: two spools went on under one instance.
            return await self._conflict(batch, f"the control API has another record {n}")
        self.shipped += n + 1 - batch.first_n
        self._failed_in_row = 0
        self._unresolved = False
        self._trouble.over()
        await self._spool.acknowledge(batch.instance, n)
        return 0.0

    async def _refused(self, batch: RecordBatch, error: ControlUnavailable) -> float:
        if not _refuses_records(error):
            return self._later(error)
        if error.status == 409:
            try:
                if await self._rewound(batch.source, batch.instance):
                    return 0.0
            except ControlUnavailable as unknown:
                return self._later(unknown)
            except (ReceiptRejected, OSError) as unknown:
                return self._failed(f"it is not known what the control API has: {unknown}")
        return await self._conflict(batch, str(error))

    async def _looked(self) -> bool:
        """As `_rewound`, where nothing hangs on it: what is not known is asked again later."""
        try:
            return await self._rewound(self._spool.source, self._spool.instance)
        except (ControlUnavailable, ReceiptRejected, OSError):
            return False

    async def _rewound(self, source: str, instance: str) -> bool:
        """Whether the control API says, and signs, that it holds less of the instance than it once
        signed for, of the same chain: then that is where shipping goes on. Raises
        `ControlUnavailable`,
        `ReceiptRejected` or `OSError` where that is not known: on False an instance is set
        aside."""
        tenant_id, log_keys = self._tenant_id(), self._log_keys()
        if tenant_id is None or not log_keys:
            raise ReceiptRejected("the log's key is not known")
        nothing = RecordBatch(source, instance, [], 0, -1, b"")
        try:
            answer = await self._centre.post(PATH, _body(nothing), seconds=ANSWER_SECONDS)
        except ControlUnavailable as error:
            if _refuses_records(error):
                return False
            raise
        held = read_receipt(answer, nothing, tenant_id, log_keys)
        ours = b"" if held.n < 0 else await self._spool.hash_of(instance, held.n)
        if ours != held.hash or not await self._spool.rewind(instance, held.n + 1):
            return False
        self.rewinds += 1
        log.warning("the control API has lost what follows record %d: it is sent again", held.n)
        return True

    async def _conflict(self, batch: RecordBatch, why: str) -> float:
        """What the control API will never take must not hold up what it will. But where it takes
        nothing of the instance that followed either, the fault is not the records': to set one
        after the other aside would fill the disk and lose them all."""
        if self._unresolved and batch.first_n == 0:
            self._failed(f"nothing is taken of the instance that follows a refused one: {why}")
            return REFUSED_PAUSE * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load
        self._unresolved = True
        self.conflicts += 1
        self.failures += 1
        log.error("instance %s is set aside at %d: %s", batch.instance, batch.first_n, why)
        await self._spool.set_aside(batch.instance, why)
        return FIRST_PAUSE

    def _later(self, error: ControlUnavailable) -> float:
        """Seconds; the records stay as they are."""
        pause, status = self._failed(str(error)), error.status
        if status is None or status < 400 or status >= 500 or status in (408, 429):
            # What it asks for is honoured, within what we would wait ourselves.
            after = min(error.after or 0.0, LONGEST_PAUSE)
            return max(pause, after * random.uniform(1.0, 1.5))  # noqa: S311
        return REFUSED_PAUSE * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load

    def _failed(self, why: str) -> float:
        """Seconds, with jitter: a fleet that lost its centre must not come back in step."""
        self.failures += 1
        self._trouble.is_(why)
        ceiling = min(LONGEST_PAUSE, FIRST_PAUSE * (1 << min(self._failed_in_row, 10)))
        self._failed_in_row += 1
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing


def _body(batch: RecordBatch) -> bytes:
    envelope = orjson.dumps({"instance": batch.instance, "source": batch.source})
    return b'%b,"records":[%b]}' % (envelope[:-1], b",".join(batch.payloads))


def _refuses_records(error: ControlUnavailable) -> bool:
    """Whether the control API itself refuses what was sent, and not something on the way to it, nor
    us: an instance is set aside for good."""
    said = isinstance(error.answer, dict) and error.answer.get("code") == error.status
    return said and error.status in (409, 422)
