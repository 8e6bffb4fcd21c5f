"""Pins the latest checkpoint of the log that this sidecar was shown, and notices a fork.

    wanted     once a minute: the size to prove growth from, for the next report
    shown      the answer's note and consistency proof: verified, then pinned on disk

A control API that shows this sidecar one version of the log and others another one, or that has
rewritten it, can't continue the pinned checkpoint. The sidecar says so and goes on deciding: the
records in its spool are the same whatever the log says.

Knows no HTTP. Believes nothing that the log's key has not signed.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from policies.ground.canonical import unb64
from policies.ground.os_errors import worded
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.signed_note import MAX_NOTE

INTERVAL_SECONDS = 60.0
_FILE = "pinned-checkpoint"
_MAX_PROOF = 64
log = logging.getLogger(__name__)


class PinnedCheckpoint:
    """The pinned note, in `directory`. `log_keys` returns the keys that may sign; none until the
    first policy set has arrived."""

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
        self._pinned = _load(self._path)
        self.fork: str | None = None
        """The contradiction between the log and the pinned checkpoint. Stays until an operator has
        removed the file and restarted the sidecar."""
        self.other_origin: str | None = None
        """The origin of the checkpoints that are shown, if it differs from the pinned one's: the
        log began again as an incarnation, or is another log."""

    @property
    def pinned(self) -> Checkpoint | None:
        return self._pinned

    def wanted(self) -> int | None:
        """Return the pinned size, 0 if nothing is pinned; None if it is not time to ask yet."""
        if self._monotonic() < self._due or not self._log_keys():
            return None
        self._due = self._monotonic() + INTERVAL_SECONDS
        return 0 if self._pinned is None else self._pinned.size

    async def shown(self, answer: Mapping[str, Any]) -> None:
        """Take in the answer to a report that asked. An older control API shows nothing."""
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
        """Return whether a verified checkpoint may replace the pinned one. Notes a fork."""
        last = self._pinned
        if last is None:
            return True
        if at.origin != last.origin:
            self._note_origin(at.origin, last.origin)
            return False
        self.other_origin = None
        fault = None
        if at.size < last.size:
            fault = (
                f"it counts {at.size} entries, fewer than the {last.size} that were shown before"
            )
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
        self._pinned = at


def _load(path: Path) -> Checkpoint | None:
    """Return the checkpoint that an earlier run pinned. The file is the sidecar's own, and the
    checkpoint was verified when it was written."""
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
