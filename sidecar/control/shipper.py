"""Ships records from the spool to the control API's log, in order, exactly once.

    read      from the segment files: only synced records ship
    send      POST /v1/sidecars/events
    verify    the receipt: signed by the log's key, for this instance, with our record's hash
    forget    only then; a segment may be deleted once all of it is acknowledged

Exactly once comes from the record numbers: the control API skips the records that it has. So
anything in doubt is sent again, and so are records that a restored control API has lost: shipping
rewinds to them.
"""

import asyncio
import logging
import random

from policies.ground.clock import Clock
from policies.ground.errors import worded
from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.control.client import ControlUnavailable
from sidecar.control.log_client import LogClient, ReceiptRejected, SpoolReceipt, refuses_records
from sidecar.platform.backoff import Backoff, jittered
from sidecar.spool import RecordBatch, Spool

log = logging.getLogger(__name__)

BATCH_BYTES = 1024 * 1024 - 4096
"""The most bytes of records in a batch, whose request body is at most 1 MiB."""
BATCH_RECORDS = 512
LINGER_SECONDS = 0.2
"""The seconds to wait for more records to join a batch. A batch costs both ends about as much as
twenty records, and holds up the requests that arrive meanwhile."""
FIRST_PAUSE = 0.1
MAX_PAUSE = 5.0
CHECK_SECONDS = 30.0
"""The seconds without anything to ship after which the control API is asked which records it
holds."""
REFUSED_PAUSE = 5.0
"""The seconds to pause if only an operator can help, because the key or every instance is
refused."""


class Shipper:
    """The loop that ships records. `shipped` counts records, `failures` failed attempts,
    `conflicts` instances set aside, `rewinds` how many times the control API had lost records, and
    `rejected` records that it refused."""

    def __init__(self, spool: Spool, log_client: LogClient, clock: Clock) -> None:
        self.shipped = self.failures = self.conflicts = self.rewinds = self.rejected = 0
        self._spool = spool
        self._log = log_client
        self._monotonic = clock.monotonic
        self._backoff = Backoff(FIRST_PAUSE, MAX_PAUSE)
        # An instance was set aside, and nothing has shipped since.
        self._unresolved = False
        back = "records are shipped again"
        self._outage = RepeatingOutageLogger(log, "shipping", back, clock.monotonic)

    @property
    def problem(self) -> str | None:
        """The reason why nothing ships at the moment; None if records ship, or if there are none to
        ship."""
        return self._outage.problem

    async def run(self) -> None:
        """Ship records until cancelled. No failure here is fatal: the spool keeps the records that
        can't be shipped."""
        while True:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._spool.wait_unshipped()
            except TimeoutError:
                # Receipts trim the spool too, but none arrive while nothing ships.
                await self._spool.trim()
                # With nothing to ship, no refusal would show that the control API was restored.
                if not await self._try_rewind():
                    continue
            # Not a full batch yet: let one form.
            if self._spool.depth < BATCH_RECORDS:
                await asyncio.sleep(LINGER_SECONDS)
            if pause := await self.step():
                await asyncio.sleep(pause)

    async def drain(self, deadline: float) -> bool:
        """Ship until nothing is left, or until `deadline` (monotonic seconds). Returns whether
        nothing is left; any records left ship after the next start. Must not run beside `run`."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._monotonic())):
                while self._has_more():
                    pause = await self.step()
                    # Records may still be on their way to the disk: don't spin until then.
                    await asyncio.sleep(pause or (0 if self._spool.depth else LINGER_SECONDS))
        except TimeoutError:
            log.warning("%d records are left in the spool", self._spool.depth)
        return not self._has_more()

    def _has_more(self) -> bool:
        return self._spool.depth > 0 or self._spool.bytes_waiting > 0

    async def step(self) -> float:
        """Ship one batch. Returns the seconds to wait before the next batch."""
        if not self._log.can_verify():
            # Without the key no receipt can be verified, so no record could be forgotten.
            return self._failed("the log's key is not known yet: no policy set was fetched")
        try:
            batch = await self._spool.batch(BATCH_BYTES, BATCH_RECORDS)
        except OSError as error:
            return self._failed(f"the spool can't be read: {worded(error)}")
        if batch is None:
            return 0.0
        try:
            receipt = await self._log.append(batch)
        except ControlUnavailable as error:
            return await self._on_refusal(batch, error)
        except ReceiptRejected as error:
            return self._failed(f"the receipt is not valid: {error}")
        # The records are in the log. If we die here they are sent again, and skipped there.
        return await self._on_receipt(batch, receipt)

    async def _on_receipt(self, batch: RecordBatch, receipt: SpoolReceipt) -> float:
        n, ours = receipt.n, batch.hash
        if n < batch.last_n:
            return self._failed(f"the receipt ends at {n}, and {batch.last_n} was sent")
        if n > batch.last_n:
            # A previous process shipped more and died before it noted that. Are these our records?
            try:
                ours = await self._spool.hash_of(batch.instance, n) or b""
            except OSError as error:
                return self._failed(f"the spool can't be read: {worded(error)}")
        # One hash stands for all records up to `n`: each holds the hash of the one before.
        if ours != receipt.hash:
            # A copied or restored directory: two spools continued the same instance.
            return await self._conflict(batch, f"the control API has another record {n}")
        self.shipped += n + 1 - batch.first_n
        if receipt.rejected:
            self._tell_rejected(batch, receipt.rejected)
        self._backoff.reset()
        self._unresolved = False
        self._outage.recovered()
        await self._spool.acknowledge(batch.instance, n)
        return 0.0

    def _tell_rejected(self, batch: RecordBatch, rejected: tuple[tuple[int, str], ...]) -> None:
        """Count and log the records that the log holds only as refused. They count as shipped:
        sending them again would change nothing."""
        self.rejected += len(rejected)
        n, reason = rejected[0]
        log.error(
            "the control API refused %d of %d records of spool instance `%s`; the first is "
            "record %s: %s", len(rejected), len(batch.payloads), batch.instance, n, reason,
        )  # fmt: skip

    async def _on_refusal(self, batch: RecordBatch, error: ControlUnavailable) -> float:
        if not refuses_records(error):
            return self._later(error)
        # The control API may have lost records: ask what it holds before giving up the instance.
        if error.status == 409:
            try:
                if await self._rewound(batch.source, batch.instance):
                    return 0.0
            except ControlUnavailable as unknown:
                return self._later(unknown)
            except (ReceiptRejected, OSError) as unknown:
                return self._failed(f"what the control API has is unknown: {unknown}")
        return await self._conflict(batch, str(error))

    async def _try_rewind(self) -> bool:
        """Do the same as `_rewound`, but return False on a failure too: the next check is soon
        enough."""
        try:
            return await self._rewound(self._spool.source, self._spool.instance)
        except (ControlUnavailable, ReceiptRejected, OSError):
            return False

    async def _rewound(self, source: str, instance: str) -> bool:
        """Rewind the spool if the control API says, and signs, that it holds fewer records of the
        same chain than it once signed for. Returns whether the spool was rewound.

        Raises `ControlUnavailable`, `ReceiptRejected` or `OSError` if that is unknown: the caller
        sets the instance aside on False, so False must be certain.
        """
        held = await self._log.held(source, instance)
        if held is None:
            return False
        # A log that holds nothing of the instance is behind every chain.
        ours = b"" if held.n < 0 else await self._spool.hash_of(instance, held.n)
        if ours != held.hash or not await self._spool.rewind(instance, held.n + 1):
            return False
        self.rewinds += 1
        log.warning("the control API has lost the records after %d: sending them again", held.n)
        return True

    async def _conflict(self, batch: RecordBatch, reason: str) -> float:
        """Set the instance aside, because records that the control API will never accept must not
        hold up others. Returns the seconds to wait."""
        # If the control API refuses the next instance from its first record on, the fault is not in
        # the records. Setting one instance after the other aside would fill the disk and lose all.
        if self._unresolved and batch.first_n == 0:
            self._failed(f"the instance after a refused one is refused too: {reason}")
            return jittered(REFUSED_PAUSE)
        self._unresolved = True
        self.conflicts += 1
        self.failures += 1
        at = batch.instance, batch.first_n
        log.error("spool instance `%s` is set aside at record %d: %s", *at, reason)
        await self._spool.set_aside(batch.instance, reason)
        return FIRST_PAUSE

    def _later(self, error: ControlUnavailable) -> float:
        """Keep the records for another attempt after `error`. Returns the seconds to wait."""
        pause, status = self._failed(str(error)), error.status
        if status is None or status < 400 or status >= 500 or status in (408, 429):
            # Honour `Retry-After`, up to our own longest pause.
            after = min(error.after or 0.0, MAX_PAUSE)
            return max(pause, after * random.uniform(1.0, 1.5))  # noqa: S311  # spreads load
        # 401, 403 and the like: nothing changes until an operator acts.
        return jittered(REFUSED_PAUSE)

    def _failed(self, reason: str) -> float:
        """Count and log a failed attempt. Returns the seconds to wait."""
        self.failures += 1
        self._outage.failing(reason)
        return self._backoff.next_pause()
