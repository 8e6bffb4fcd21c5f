"""Appends records to the control API's log, verifies the signed receipts, and pins the latest
checkpoint that this sidecar was shown.

A control API that shows this sidecar another log than it shows others, or that has rewritten the
log, can't continue the pinned checkpoint: that is a fork. The sidecar reports the fork and goes on
deciding.
"""

import asyncio
import logging
import os
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import unb64
from policies.ground.errors import worded
from policies.ground.signing import receipt_message, verify
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.signed_note import MAX_NOTE
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.spool import RecordBatch

PATH = "/v1/sidecars/events"
ANSWER_SECONDS = 30.0
_GZIP = 31
"""The value of zlib's `wbits` for the gzip format."""

INTERVAL_SECONDS = 60.0
_FILE = "pinned-checkpoint"
_MAX_PROOF = 64
log = logging.getLogger(__name__)


class SpoolReceipt(NamedTuple):
    """The control API's statement that the log holds every record up to `n`, and that record `n`
    has this core hash. `rejected` names those of the sent records that the log holds as refused,
    with the reason; this part is not signed, and older versions of the control API leave it out."""

    n: int
    hash: bytes
    rejected: tuple[tuple[int, str], ...] = ()


class ReceiptRejected(Exception):
    """the answer is not a valid receipt for what was sent"""


class _OtherKey(ReceiptRejected):
    """its signature is not by the log's key"""


@dataclass(frozen=True, slots=True)
class LogClient:
    """Sends records to the control API's log, and verifies its receipts. `tenant_id` and `log_keys`
    come from the policy set; they return None and `()` until it has arrived. `learn_key` brings
    `log_keys` up to date, and returns the reason if it can't."""

    control: ControlClient
    tenant_id: Callable[[], str | None]
    log_keys: Callable[[], tuple[bytes, ...]]
    learn_key: Callable[[], Awaitable[str | None]]
    compress: bool = field(default=False, kw_only=True)

    def can_verify(self) -> bool:
        """Return whether the log's tenant and signing keys are known, so that receipts can be
        verified."""
        return self.tenant_id() is not None and bool(self.log_keys())

    async def append(self, batch: RecordBatch) -> SpoolReceipt:
        """Send records to the log, which skips those that it already has. Returns the verified
        receipt. Raises `ControlUnavailable`, and `ReceiptRejected` if the answer proves nothing."""
        answer = await self._send(_body(batch))
        try:
            return self._verified(answer, batch.source, batch.instance)
        except _OtherKey as error:
            # The key may have been rotated since the policy set last said who signs.
            if unknown := await self.learn_key():
                raise ReceiptRejected(f"{error}, and who signs is not known: {unknown}") from error
        return self._verified(answer, batch.source, batch.instance)

    async def held(self, source: str, instance: str) -> SpoolReceipt | None:
        """Return the log's receipt for the records that it holds of the instance; None if it
        refuses to say. Raises the errors of `append`."""
        try:
            # A batch of no records: the receipt says how far the log is.
            return await self.append(RecordBatch(source, instance, [], 0, -1, b""))
        except ControlUnavailable as error:
            if refuses_records(error):
                return None
            raise

    async def _send(self, body: bytes) -> dict[str, Any]:
        if not self.compress:
            return await self.control.post(PATH, body, seconds=ANSWER_SECONDS)
        # In a thread, so that the event loop keeps running: a full batch takes ten milliseconds.
        packed = await asyncio.to_thread(zlib.compress, body, 1, _GZIP)
        return await self.control.post(PATH, packed, seconds=ANSWER_SECONDS, encoding="gzip")

    def _verified(self, answer: dict[str, Any], source: str, instance: str) -> SpoolReceipt:
        try:
            n, hash_, signature = answer["n"], unb64(answer["hash"]), unb64(answer["signature"])
            about = (answer["source"], answer["instance"])
        except (KeyError, TypeError, ValueError) as error:
            raise ReceiptRejected(f"it can't be read: {error!r}") from error
        # `type`, because True is an `int` too.
        if about != (source, instance) or type(n) is not int:
            raise ReceiptRejected("it is about another instance")
        tenant_id = self.tenant_id()
        if tenant_id is None:
            raise ReceiptRejected("the log's key is not known")
        # INVARIANT: only a signature lets the spool forget a record. A proxy on the way can delay
        # records, but can't make the sidecar drop them.
        message = receipt_message(tenant_id, source, instance, n, hash_)
        if not any(verify(key, signature, message) for key in self.log_keys()):
            raise _OtherKey(_OtherKey.__doc__)
        return SpoolReceipt(n, hash_, _rejected(answer.get("rejected")))


def _rejected(listed: object) -> tuple[tuple[int, str], ...]:
    if not isinstance(listed, list):
        return ()
    items = [each for each in listed if isinstance(each, dict)]
    return tuple((each.get("n", -1), str(each.get("reason"))) for each in items)


def refuses_records(error: ControlUnavailable) -> bool:
    """Return whether the control API itself refuses the records: only then may an instance be set
    aside for good. A refusal by a proxy on the way, or of the sidecar's key, does not count."""
    # The control API repeats the status in its body; a gateway's own error page does not.
    from_control_api = isinstance(error.answer, dict) and error.answer.get("code") == error.status
    return from_control_api and error.status in (409, 422)


def _body(batch: RecordBatch) -> bytes:
    # The payloads are JSON already. They go out byte for byte: the chain holds their hashes.
    envelope = orjson.dumps({"instance": batch.instance, "source": batch.source})
    return b'%b,"records":[%b]}' % (envelope[:-1], b",".join(batch.payloads))


class PinnedCheckpoint:
    """The latest verified checkpoint of the log, kept in a file in `directory`. Later checkpoints
    must continue it. `log_keys` returns the keys that may sign; it returns none until the first
    policy set has arrived."""

    def __init__(
        self,
        directory: Path,
        log_keys: Callable[[], tuple[bytes, ...]],
        monotonic: Callable[[], float],
    ) -> None:
        self._path = directory / _FILE
        self._log_keys = log_keys
        self._monotonic = monotonic
        self._due = 0.0
        self.pinned = _load(self._path)
        self.fork: str | None = None
        """A description of how the log contradicts the pinned checkpoint, until an operator removes
        its file; None if it does not."""
        self.other_origin: str | None = None
        """The origin of the checkpoints shown, if it differs from the pinned one's because the log
        began again; otherwise None."""

    def wanted(self) -> int | None:
        """Return the size of the pinned checkpoint, from which to ask for a proof of the next one;
        0 if none is pinned. None if it is not time to ask yet, or the log's keys are not known."""
        if self._monotonic() < self._due or not self._log_keys():
            return None
        self._due = self._monotonic() + INTERVAL_SECONDS
        return 0 if self.pinned is None else self.pinned.size

    async def shown(self, answer: Mapping[str, Any]) -> None:
        """Verify and pin the checkpoint in the answer to a report that asked for one. An older
        control API sends none."""
        note, proof = answer.get("checkpoint"), answer.get("consistency")
        if not isinstance(note, str):
            return
        try:
            if not isinstance(proof, list | None):
                raise ValueError("its proof is no list")
            at = checkpoint.read(note, checkpoint.unverified(note).origin, self._log_keys())
            hashes = [unb64(each) for each in (proof or ())[:_MAX_PROOF]]
        except (BadNote, TypeError, ValueError) as error:
            # Not a fork: something on the way may have changed it.
            log.warning("a checkpoint was shown that can't be verified: %s", error)
            return
        if self._continues(at, hashes, proven=isinstance(proof, list)) and self.fork is None:
            await self._pin(at, note)

    def _continues(self, at: Checkpoint, hashes: list[bytes], *, proven: bool) -> bool:
        """Return whether a verified checkpoint may replace the pinned one. Notes a fork if it
        contradicts the pinned one."""
        last = self.pinned
        if last is None:
            return True
        if at.origin != last.origin:
            self._note_origin(at.origin, last.origin)
            return False
        self.other_origin = None
        fault = None
        if at.size < last.size:
            shown = f"the {last.size} that were shown before"
            fault = f"it counts {at.size} entries, fewer than {shown}"
        elif at.size == last.size:
            fault = None if at.root == last.root else f"at {at.size} entries it has another root"
        elif proven and not tree_proofs.proves_consistency(
            last.size, last.root, at.size, at.root, hashes
        ):
            fault = f"at {at.size} entries it does not continue the {last.size} shown before"
        if fault is not None:
            self._note_fork(f"the log `{at.origin}` is forked: {fault}")
        # Without a proof, growth is only claimed: the pinned checkpoint stays.
        return fault is None and proven and at.size > last.size

    def _note_fork(self, fault: str) -> None:
        if self.fork is None:
            log.error("%s; the pinned checkpoint is `%s`", fault, self._path)
        self.fork = fault

    def _note_origin(self, origin: str, pinned: str) -> None:
        if self.other_origin != origin:
            log.error(
                "the log's checkpoints have the origin `%s`, but `%s` is pinned: ask why the log "
                "began again, and remove `%s` to accept it",
                origin, pinned, self._path,
            )  # fmt: skip
        self.other_origin = origin

    async def _pin(self, at: Checkpoint, note: str) -> None:
        try:
            await asyncio.to_thread(_write, self._path, note)
        except OSError as error:
            # The one on disk is older, which is safe: the next one is proven from it.
            log.warning("the checkpoint could not be pinned on disk: %s", worded(error, self._path))
        self.pinned = at


def _load(path: Path) -> Checkpoint | None:
    """Return the checkpoint that an earlier run pinned; None if there is none. It is not verified
    again: the file is the sidecar's own, and the checkpoint was verified when it was written."""
    try:
        with path.open(encoding="utf-8") as file:
            return checkpoint.unverified(file.read(MAX_NOTE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = worded(error) if isinstance(error, OSError) else error
        log.error("`%s` can't be read, so the next checkpoint is pinned anew: %s", path, reason)
        return None


def _write(path: Path, note: str) -> None:
    # Written whole and renamed: a crash leaves the old note or the new one.
    unfinished = path.with_name(f".{path.name}")
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(note.encode())
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
