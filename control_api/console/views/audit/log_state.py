"""What the audit pages say of a log: verdicts in words and a tone, from what the use cases return.
Reads nothing.

INVARIANT: what is damaged is told before anything else, and what was not checked is never told as
if it had been.
"""

from collections.abc import Collection
from typing import NamedTuple

from control_api.checkpoints.level import level_of
from control_api.responses.checkpoints import Verification
from policies.ground.canonical import b64, micros
from policies.ground.errors import SluiceError
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote
from policies.trail.proofs import cosignature, signed_note
from policies.trail.proofs.signed_note import VerifierKey

UNSIGNED_FOR = 300_000_000
"""Microseconds that new entries may wait for a checkpoint, which follows within seconds."""
STALE = 86_400_000_000
"""Microseconds after which a verification that found nothing is told as old."""
_WORST_FIRST = ("bad", "warn", "info", "good")


class Verdict(NamedTuple):
    """What the log's state is, for a person. `tone` is that of a notice."""

    tone: str
    title: str
    text: str


class Signed(NamedTuple):
    """A checkpoint: what its note says, its level by its signatures as they verify now, and when
    each witness cosigned it, in microseconds. `signed_at` is None if only the note is known."""

    origin: str
    size: int
    root: str
    note: str
    level: str
    cosigned: dict[VerifierKey, int]
    signed_at: str | None = None


def read_signed(
    note: str,
    publics: Collection[bytes],
    witnesses: Collection[VerifierKey],
    quorum: int,
    signed_at: str | None = None,
) -> Signed:
    """The checkpoint with what its signatures prove. Raises `BadNote` if it can't be read."""
    found = checkpoint.unverified(note)
    level, _ = level_of(note, found.origin, publics, witnesses, quorum)
    by = cosigned(note, witnesses)
    return Signed(found.origin, found.size, b64(found.root), note, level.value, by, signed_at)


def cosigned(note: str, witnesses: Collection[VerifierKey]) -> dict[VerifierKey, int]:
    """When each witness cosigned the note, in microseconds; only those whose cosignature
    verifies."""
    try:
        found = cosignature.verified(signed_note.parse(note), witnesses)
    except BadNote:
        return {}
    return {each.key: each.signed_at * 1_000_000 for each in found}


def verdicts(
    found: Verification | None, signed: Signed | None, unread: SluiceError | None, now: int
) -> list[Verdict]:
    """What a person must know of the log, the worst first. `found` and `signed` are None if they
    could not be read, for the reason `unread`, or if there is no checkpoint."""
    told = []
    if unread is not None:
        text = f"{unread.message}. What is missing on this page was not looked at."
        told.append(Verdict("bad", "THE LOG CAN'T BE READ", text))
    if found is not None:
        told.append(_verified(found, now))
    if found is not None and signed is not None:
        told += _compared(found, signed, now)
    return sorted(told, key=lambda each: _WORST_FIRST.index(each.tone))


def _verified(found: Verification, now: int) -> Verdict:
    if found.state == "damaged":
        where = "" if found.broken_seq is None else f" at entry {found.broken_seq:,}"
        return Verdict("bad", f"DAMAGED{where}", found.reason or "the verification found a fault")
    if not found.total:
        return Verdict("info", "Empty", "No entry is in the log yet.")
    if found.state == "pending" or found.finished_at is None:
        text = "The service has not verified this log to its end yet. Nothing is known of the rest."
        return Verdict("warn", "Not verified yet", text)
    size = found.finished_size or 0
    newer = max(0, found.total - size)
    text = f"The service found nothing wrong in the {size - found.first:,} entries that it read. "
    if newer:
        text += f"What came later ({newer:,}) is not verified yet."
    else:
        text += "These are all."
    if now - micros(found.finished_at) > STALE:
        return Verdict("warn", "Verified more than a day ago", text)
    return Verdict("good", "Valid when the service last verified it", text)


def _compared(found: Verification, signed: Signed, now: int) -> list[Verdict]:
    told = []
    if signed.level == "unsigned":
        text = f"No signature of the log's key fits the checkpoint of {signed.size:,} entries."
        told.append(Verdict("bad", "NOT SIGNED", text))
    if signed.size > found.total:
        text = (
            f"The checkpoint is of {signed.size:,} entries, and the log has {found.total:,}: "
            "entries were removed, or an older copy was put back."
        )
        told.append(Verdict("bad", "ENTRIES ARE MISSING", text))
    elif signed.size < found.total and _is_old(signed.signed_at, now):
        text = (
            f"The newest entries ({found.total - signed.size:,}) are under no checkpoint, though "
            "one follows within seconds as a rule."
        )
        told.append(Verdict("warn", "Signing is behind", text))
    return told


def _is_old(signed_at: str | None, now: int) -> bool:
    return signed_at is not None and now - micros(signed_at) > UNSIGNED_FOR
