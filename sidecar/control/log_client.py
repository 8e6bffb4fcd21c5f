"""The control API's log, as a sidecar appends to it: records go out, signed receipts come back.

Knows the format of both, and whether a receipt may be trusted. Knows nothing of what becomes of the
records.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import unb64
from policies.ground.signing import receipt_message, verify
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.spool import RecordBatch

PATH = "/v1/sidecars/events"
ANSWER_SECONDS = 30.0
_GZIP = 31
"""zlib's `wbits` for the gzip format."""


class SpoolReceipt(NamedTuple):
    """States that the log holds every record up to `n`, and that record `n` has this core hash.
    `rejected` names those of the sent records that the log holds as refused, with the reason. It is
    not signed, and older versions of the control API leave it out."""

    n: int
    hash: bytes
    rejected: tuple[tuple[int, str], ...] = ()


class ReceiptRejected(Exception):
    """the answer is not a valid receipt for what was sent"""


class _OtherKey(ReceiptRejected):
    """its signature is not by the log's key"""


class LogClient:
    """`tenant_id` and `log_keys` come from the policy set: None and `()` until it has arrived.
    `learn_key` brings `log_keys` up to date, and returns the reason if it can't."""

    def __init__(
        self,
        control: ControlClient,
        tenant_id: Callable[[], str | None],
        log_keys: Callable[[], tuple[bytes, ...]],
        learn_key: Callable[[], Awaitable[str | None]],
        *,
        compress: bool = False,
    ) -> None:
        self._control = control
        self._tenant_id = tenant_id
        self._log_keys = log_keys
        self._learn_key = learn_key
        self._compress = compress

    def can_verify(self) -> bool:
        """Return whether it is known which tenant the log belongs to and which keys sign it."""
        return self._tenant_id() is not None and bool(self._log_keys())

    async def append(self, batch: RecordBatch) -> SpoolReceipt:
        """Send records; the log skips those that it already has. Raises `ControlUnavailable`, and
        `ReceiptRejected` if the answer proves nothing."""
        answer = await self._send(_body(batch))
        try:
            return self._verified(answer, batch.source, batch.instance)
        except _OtherKey as error:
            # The key may have been rotated since the policy set last said who signs.
            if unknown := await self._learn_key():
                raise ReceiptRejected(f"{error}, and who signs is not known: {unknown}") from error
        return self._verified(answer, batch.source, batch.instance)

    async def held(self, source: str, instance: str) -> SpoolReceipt | None:
        """Return the log's receipt for the records that it holds of the instance, None if it
        refuses to say. Raises what `append` raises."""
        # A batch of no records: the receipt says how far the log is.
        nothing = RecordBatch(source, instance, [], 0, -1, b"")
        try:
            return await self.append(nothing)
        except ControlUnavailable as error:
            if refuses_records(error):
                return None
            raise

    async def _send(self, body: bytes) -> dict[str, Any]:
        if not self._compress:
            return await self._control.post(PATH, body, seconds=ANSWER_SECONDS)
        # In a thread, so that the event loop keeps running: a full batch takes ten milliseconds.
        packed = await asyncio.to_thread(zlib.compress, body, 1, _GZIP)
        return await self._control.post(PATH, packed, seconds=ANSWER_SECONDS, encoding="gzip")

    def _verified(self, answer: dict[str, Any], source: str, instance: str) -> SpoolReceipt:
        try:
            n, hash_ = answer["n"], unb64(answer["hash"])
            signature = unb64(answer["signature"])
            about = (answer["source"], answer["instance"])
        except (KeyError, TypeError, ValueError) as error:
            raise ReceiptRejected(f"it can't be read: {error!r}") from error
        # `type`, because True is an `int` too.
        if about != (source, instance) or type(n) is not int:
            raise ReceiptRejected("it is about another instance")
        tenant_id = self._tenant_id()
        if tenant_id is None:
            raise ReceiptRejected("the log's key is not known")
        # INVARIANT: only a signature lets the spool forget a record. A proxy on the way can delay
        # records, but can't make the sidecar drop them.
        message = receipt_message(tenant_id, source, instance, n, hash_)
        if not any(verify(key, signature, message) for key in self._log_keys()):
            raise _OtherKey(_OtherKey.__doc__)
        return SpoolReceipt(n, hash_, _rejected(answer.get("rejected")))


def _rejected(listed: object) -> tuple[tuple[int, str], ...]:
    """Return the refused records of an answer, as far as it can be read."""
    if not isinstance(listed, list):
        return ()
    items = [each for each in listed if isinstance(each, dict)]
    return tuple((each.get("n", -1), str(each.get("reason"))) for each in items)


def refuses_records(error: ControlUnavailable) -> bool:
    """Return whether the control API itself refuses the records: only then may an instance be set
    aside for good. The refusal of a proxy on the way, or of the sidecar's key, does not count."""
    # The control API repeats the status in its body; a gateway's own error page does not.
    from_control_api = isinstance(error.answer, dict) and error.answer.get("code") == error.status
    return from_control_api and error.status in (409, 422)


def _body(batch: RecordBatch) -> bytes:
    # The payloads are JSON already. They go out byte for byte: the chain holds their hashes.
    envelope = orjson.dumps({"instance": batch.instance, "source": batch.source})
    return b'%b,"records":[%b]}' % (envelope[:-1], b",".join(batch.payloads))
