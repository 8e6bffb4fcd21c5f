"""The control API's signed receipt for a batch of records, and its verification. Knows nothing of
what becomes of the records."""

from collections.abc import Collection
from typing import Any, NamedTuple

from policies.ground.canonical import unb64
from policies.ground.signing import receipt_message, verify
from sidecar.spool import RecordBatch


class SpoolReceipt(NamedTuple):
    """Everything up to record `n`, which has this core hash, is in the log."""

    n: int
    hash: bytes


class ReceiptRejected(Exception):
    """the answer is not a valid receipt for what was sent"""


def read_receipt(
    answer: dict[str, Any], batch: RecordBatch, tenant_id: str, log_keys: Collection[bytes]
) -> SpoolReceipt:
    """Verify a receipt. Raises `ReceiptRejected` if none of the log's keys signed it, or if it is
    about other records."""
    try:
        n, hash_ = answer["n"], unb64(answer["hash"])
        signature = unb64(answer["signature"])
        about = (answer["source"], answer["instance"])
    except (KeyError, TypeError, ValueError) as error:
        raise ReceiptRejected(f"it can't be read: {error!r}") from error
    if about != (batch.source, batch.instance) or type(n) is not int:
        raise ReceiptRejected("it is about another instance")
    message = receipt_message(tenant_id, *about, n, hash_)
    if not any(verify(key, signature, message) for key in log_keys):
        raise ReceiptRejected("its signature is not by the log's key")
    return SpoolReceipt(n, hash_)
