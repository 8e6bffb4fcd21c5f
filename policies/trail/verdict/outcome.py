"""The result of a verification, in the form that `--json` prints and the summary explains. Verifies
nothing."""

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from policies.ground.canonical import unb64
from policies.trail.findings import Finding, Reason
from policies.trail.walk.gaps import Silences, silence


class Level(StrEnum):
    """The strength of the proof that a verification gives: it rests on nothing from outside
    (`unsigned`), on a pinned key (`signed`), or on witnesses too (`witnessed`)."""

    UNSIGNED = "unsigned"
    SIGNED = "signed"
    WITNESSED = "witnessed"


class NotCompared(NamedTuple):
    """A checkpoint of `size` entries that the command's arguments gave and that could not be
    compared with the log; `why` is the reason."""

    size: int
    why: str


class NotDerived(NamedTuple):
    """A number of decisions that could not be derived again, and why: their documents are gone, or
    the changes behind their facts are not known."""

    decisions: int
    why: str


class Unusable(Exception):
    """arguments, a file or a database that can't be verified at all; exit code 2"""


@dataclass(slots=True)
class Outcome:
    """The result of one verification.

    `first` and `size` are the range of verified entries, `size` exclusive; `oldest` is the first
    entry that the log still had, and `earlier` counts the entries right before `first` that earlier
    runs verified. `to_end` says that no larger log is known of, and `partial` that the file's
    header, which no key signs, calls the file a partial export. `spools_followed` says that each
    spool was followed through the log.

    `covered` is the largest size that a checkpoint proves, None without one; `signer` is the key
    that signed that checkpoint, and `covered_how` says why it is trusted. `pinned` says that keys
    were pinned; `given_keys` are those in base64.

    `documents` is the number of policy documents that were compared with the digests that decisions
    cite, None if they were not compared. `documents_gone` counts the decisions whose documents are
    missing for a reason that the log tells. `notes` are lines for the summary about keys, witnesses
    and the rest.
    """

    subject: str
    log: str = ""
    origin: str = ""
    first: int = 0
    size: int = 0
    oldest: int = 0
    earlier: int = 0
    decisions: int = 0
    sources: int = 0
    spools_followed: bool = True
    first_ts: str = ""
    last_ts: str = ""
    made_at: str = ""
    to_end: bool = True
    partial: bool = False
    silences: Silences = field(default_factory=Silences)
    level: Level = Level.UNSIGNED
    covered: int | None = None
    signer: str = ""
    covered_how: str = ""
    pinned: bool = False
    openings: str = "checked"
    erased: int = 0
    erased_later: int = 0
    erased_unproven: int = 0
    not_recomputable: int | None = None
    recomputed: int | None = None
    not_derived: list[NotDerived] = field(default_factory=list)
    documents: int | None = None
    documents_gone: list[NotDerived] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    more_findings: int = 0
    neighbours: list[str] = field(default_factory=list)
    claimed_keys: list[str] = field(default_factory=list)
    given_keys: list[str] = field(default_factory=list)
    witnesses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)

    @property
    def covered_by(self) -> str:
        """The signer of the largest checkpoint, and why it is trusted; empty without a
        checkpoint."""
        return f"{self.signer} ({self.covered_how})" if self.signer else self.covered_how

    @property
    def fingerprints(self) -> list[str]:
        """The SHA-256 in hex of the public key that signed the largest checkpoint; without a
        checkpoint, of each pinned key."""
        keys = [self.signer] if self.signer else self.given_keys
        return [sha256(unb64(key)).hexdigest() for key in keys]

    @property
    def level_holds(self) -> bool:
        """False if there are findings other than missing cosignatures: then a signature proves
        nothing, so that `level` must not be claimed."""
        only_quorum = all(each.reason is Reason.QUORUM_MISSING for each in self.findings)
        return only_quorum or self.level is Level.UNSIGNED

    @property
    def valid(self) -> bool:
        return not self.findings

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 if all holds; 1 for findings; 2 if a checkpoint that was
        given could not be used, a decision could not be derived for a reason that the log tells, or
        not every spool could be followed."""
        if self.findings:
            return 1
        return 2 if self.not_compared or self.not_derived or not self.spools_followed else 0

    @property
    def entries(self) -> int:
        """The number of entries that were verified."""
        return self.size - self.first

    @property
    def unproven_tail(self) -> int:
        """The number of entries at the end that no checkpoint covers yet."""
        seen = self.first - self.earlier
        return self.size - min(max(self.covered or 0, seen), self.size)

    @property
    def silent_at_end(self) -> bool:
        """True if the file was made so long after its last entry that a running service would have
        recorded a heartbeat meanwhile."""
        if not (self.last_ts and self.made_at and self.to_end):
            return False
        return self.made_at > self.last_ts and silence(0, self.last_ts, self.made_at) is not None

    def add(self, finding: Finding, most: int = 100) -> None:
        """Add a finding to the list, or only count it if the list has `most` findings already."""
        if len(self.findings) < most:
            self.findings.append(finding)
        else:
            self.more_findings += 1

    def _signed_by(self) -> dict[str, str | None] | None:
        return {"key": self.signer or None, "how": self.covered_how} if self.covered_how else None

    def to_wire(self) -> dict[str, Any]:
        return {
            "valid": self.valid,
            "level": str(self.level),
            "log": self.log,
            "origin": self.origin,
            "completeness": {
                "first": self.oldest,
                "from": self.first,
                "to": self.size,
                "to_end": self.to_end,
                "part": self.partial,
            },
            "claimed_keys": self.claimed_keys,
            "signed_by": self._signed_by(),
            "entries": self.entries,
            "findings": [finding.to_wire() for finding in self.findings],
            "more_findings": self.more_findings,
            "unproven_tail": self.unproven_tail,
            "not_recomputable": self.not_recomputable,
            "not_derived": [each._asdict() for each in self.not_derived],
            "documents": {
                "checked": self.documents is not None,
                "found": self.documents,
                "gone": [each._asdict() for each in self.documents_gone],
            },
            "not_compared": [each._asdict() for each in self.not_compared],
            "spools_followed": self.spools_followed,
            "erased": {
                "entries": self.erased,
                "behind_the_file": self.erased_later,
                "unproven": self.erased_unproven,
            },
            "freshness": {
                "last_entry": self.last_ts or None,
                "made_at": self.made_at or None,
                "silent_at_end": self.silent_at_end,
                "silences": self.silences.count,
                "longest": [
                    {"seq": each.seq, "from": each.begin, "to": each.end}
                    for each in self.silences.longest()
                ],
            },
        }
