"""The closed list of findings that a verification can report, the same in `GET /v1/audit/verify`,
in `sluice verify` and in the scheduled verification. Knows no log; checks nothing.

A finding names one reason of the list. `policies/trail/README.md` shows the list as a table; a test
compares the two.
"""

from enum import StrEnum
from typing import Any, NamedTuple


class Reason(StrEnum):
    """The reason why a log, or an export file of a log, does not verify. A code is never renamed or
    reused: monitoring tools compare it."""

    # One entry, by itself.
    NOT_AN_ENTRY = "not_an_entry"
    NOT_CANONICAL = "not_canonical"
    OUTSIDE_PROFILE = "outside_profile"
    WRONG_MEMBERS = "wrong_members"
    TOO_LARGE = "too_large"
    # Its place in the log.
    ENTRIES_MISSING = "entries_missing"
    ENTRY_MISPLACED = "entry_misplaced"
    WRONG_SEQ = "wrong_seq"
    WRONG_LOG = "wrong_log"
    CHAIN_BROKEN = "chain_broken"
    TIME_REVERSED = "time_reversed"
    DUPLICATE_ID = "duplicate_id"
    # Its place among the records of its enforcement point.
    SOURCE_GAP = "source_gap"
    SOURCE_CHAIN_BROKEN = "source_chain_broken"
    # What is stored beside it.
    OPENING_MISSING = "opening_missing"
    OPENING_MISMATCH = "opening_mismatch"
    HASH_MISMATCH = "hash_mismatch"
    COLUMN_MISMATCH = "column_mismatch"
    INDEX_INCOMPLETE = "index_incomplete"
    HEAD_MISMATCH = "head_mismatch"
    # What was signed.
    ROOT_MISMATCH = "root_mismatch"
    LOG_BEHIND_CHECKPOINT = "log_behind_checkpoint"
    INCARNATION = "incarnation"
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    CHECKPOINT_MISSING = "checkpoint_missing"
    SIGNATURE_MISSING = "signature_missing"
    QUORUM_MISSING = "quorum_missing"
    # What retention removed.
    ANCHOR_INVALID = "anchor_invalid"
    PURGE_UNCOVERED = "purge_uncovered"
    PURGED_ROW_EXISTS = "purged_row_exists"
    PURGE_MISMATCH = "purge_mismatch"
    # The decision, derived again.
    DECISION_DIFFERS = "decision_differs"
    FACTS_CONTRADICT = "facts_contradict"
    DOCUMENT_MISMATCH = "document_mismatch"
    DOCUMENT_MISSING = "document_missing"
    # The file of an export.
    FILE_TRUNCATED = "file_truncated"
    FILE_MALFORMED = "file_malformed"
    FILE_DIGEST_MISMATCH = "file_digest_mismatch"


SENTENCES: dict[Reason, str] = {
    Reason.NOT_AN_ENTRY: "The bytes can't be read as an entry.",
    Reason.NOT_CANONICAL: "The entry is not written in the one encoding that it may have.",
    Reason.OUTSIDE_PROFILE: "The entry holds a float, a forbidden key or too many levels.",
    Reason.WRONG_MEMBERS: "The entry has other members than an entry has.",
    Reason.TOO_LARGE: "The entry is larger than 64 KiB.",
    Reason.ENTRIES_MISSING: "Entries before this one were removed.",
    Reason.ENTRY_MISPLACED: "The entry stands where another belongs.",
    Reason.WRONG_SEQ: "The entry says another `seq` than its place.",
    Reason.WRONG_LOG: "The entry belongs to another log, or to another version of the format.",
    Reason.CHAIN_BROKEN: "`prev` is not the hash of the entry before: one of the two was changed.",
    Reason.TIME_REVERSED: "The entry's time is before that of the entry before.",
    Reason.DUPLICATE_ID: "Two entries have the same `eid`.",
    Reason.SOURCE_GAP: "Records of an enforcement point were dropped, repeated or reordered.",
    Reason.SOURCE_CHAIN_BROKEN: "A record of an enforcement point was changed after it left it.",
    Reason.OPENING_MISSING: "An opening is missing, and no `redact` entry says that it was erased.",
    Reason.OPENING_MISMATCH: "An opening does not match its commitment.",
    Reason.HASH_MISMATCH: "The hash stored beside the entry is not that of its bytes.",
    Reason.COLUMN_MISMATCH: "A column beside the entry, or a count, says something else than "
    "the entries.",
    Reason.INDEX_INCOMPLETE: "The search index would not show the entry.",
    Reason.HEAD_MISMATCH: "The log's head row does not fit its entries.",
    Reason.ROOT_MISMATCH: "The log is not the one that was signed: its tree has another root.",
    Reason.LOG_BEHIND_CHECKPOINT: "The log is smaller than a size that was signed.",
    Reason.INCARNATION: "The log continues under a new origin, which is not pinned yet.",
    Reason.CHECKPOINT_UNREADABLE: "A checkpoint is not in the form of one, or is of another log.",
    Reason.CHECKPOINT_MISSING: "Keys are pinned, but no checkpoint is there to be verified.",
    Reason.SIGNATURE_MISSING: "A checkpoint is not signed by a pinned key, or one it endorsed.",
    Reason.QUORUM_MISSING: "The latest checkpoint has fewer cosignatures than were asked for.",
    Reason.ANCHOR_INVALID: "What is left of a purged prefix contradicts itself, or is not signed.",
    Reason.PURGE_UNCOVERED: "Entries are gone, and no `purge` entry under a checkpoint says that "
    "retention removed them.",
    Reason.PURGED_ROW_EXISTS: "An entry that was purged is there.",
    Reason.PURGE_MISMATCH: "A `purge` entry does not fit what was removed.",
    Reason.DECISION_DIFFERS: "The recorded facts and policies give another decision.",
    Reason.FACTS_CONTRADICT: "The recorded facts contradict each other, or changes before them.",
    Reason.DOCUMENT_MISMATCH: "A policy document is not one that decisions cite by its digest.",
    Reason.DOCUMENT_MISSING: "A policy document that decisions cite is missing.",
    Reason.FILE_TRUNCATED: "The file ends too early.",
    Reason.FILE_MALFORMED: "The file is not in the form of an export.",
    Reason.FILE_DIGEST_MISMATCH: "The file's bytes are not those that its last line describes.",
}
"""The meaning of each reason, in one sentence."""

DERIVED = frozenset(
    (
        Reason.DECISION_DIFFERS,
        Reason.FACTS_CONTRADICT,
        Reason.DOCUMENT_MISMATCH,
        Reason.DOCUMENT_MISSING,
    )
)
"""The reasons that come from deriving a decision again. A log with such a finding may be intact in
all its hashes."""


class Finding(NamedTuple):
    """One fault that a verification found. `seq` is the number of the faulty entry, None if the
    fault concerns the log or the file as a whole; `eid` is that entry's id, if it can be read.
    `message` describes the fault, with the values."""

    seq: int | None
    reason: Reason
    message: str
    eid: str | None = None

    @property
    def place(self) -> str:
        """The id of the faulty entry's event, or else its `seq` in digits (shown as `broken_at`;
        `CONTRACT.md`, Verification and retention)."""
        return self.eid if self.eid is not None else str(self.seq or 0)

    def text(self) -> str:
        """Return the reason's code and the message, as `GET /v1/audit/verify` shows them."""
        return f"{self.reason}: {self.message}"

    def to_wire(self) -> dict[str, Any]:
        """Return the finding as `sluice verify --json` prints it."""
        return {"seq": self.seq, "reason": str(self.reason), "message": self.message}
