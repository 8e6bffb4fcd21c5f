"""The receipt for a batch: what the control API signs that it holds, and whether it did. Knows
nothing of what becomes of the records.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from policies.ground.canonical import unb64
from policies.ground.signing import receipt_message, verify
from sidecar.spool import RecordBatch


class SpoolReceipt(NamedTuple):
    """Everything up to record `n`, whose core hash this is, is in the log."""

    n: int
    hash: bytes


class ReceiptRejected(Exception):
    """the answer is no receipt for what was sent"""


def read_receipt(
    answer: dict[str, Any], batch: RecordBatch, tenant_id: str, log_keys: Collection[bytes]
) -> SpoolReceipt:
    """`ReceiptRejected` where it is signed by none of the log's keys, or is about something
    else."""
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
