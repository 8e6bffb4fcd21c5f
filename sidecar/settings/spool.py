"""What an operator may set for the spool, a sentence a field. Knows nothing of files or YAML."""

from dataclasses import dataclass
from pathlib import Path

MODES = ("durable", "strict", "best_effort")
"""How an answer waits for its record (`audit-trail.md`, Enforcement points)."""

SMALLEST_SEGMENT = 1024 * 1024
SMALLEST_MEMORY = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Where records wait until the control API has them, and what happens when they can't."""

    dir: Path
    """The directory of the spool; it belongs to one sidecar alone and is made, with mode 0700,
    where it does not exist."""
    mode: str = "durable"
    """`durable` answers once the record is on disk, `strict` the same or 503 after `timeout_ms`,
    `best_effort` at once, and what could not be kept is counted and declared."""
    max_bytes: int = 1024 * 1024 * 1024
    """The most bytes that the directory's segments may take, those set aside included; then only
    denials are recorded, in the room reserved for them, and then nothing is answered."""
    segment_bytes: int = 8 * 1024 * 1024
    """The size of one segment file, which is filled with zeros in advance; two are held ready, and
    what is left of the last one, at least an eighth, is for denials alone."""
    timeout_ms: int = 250
    """How long a record may take to reach the disk in mode `strict`."""
    memory_bytes: int = 16 * 1024 * 1024
    """The most bytes of records that may wait in memory for the disk; beyond it nothing is answered
    or, in mode `best_effort`, records are lost and counted."""

    def complaints(self) -> list[str]:
        """What is not usable, a sentence each."""
        found = []
        if self.mode not in MODES:
            found.append(f"`mode` is `{self.mode}`, not one of {', '.join(MODES)}")
        if self.segment_bytes < SMALLEST_SEGMENT:
            found.append(f"`segment_bytes` is {self.segment_bytes}, below {SMALLEST_SEGMENT}")
        if self.max_bytes < 3 * self.segment_bytes:
            found.append(
                f"`max_bytes` is {self.max_bytes}, less than three segments of "
                f"{self.segment_bytes}: one is written, two are held ready"
            )
        if self.timeout_ms < 1:
            found.append(f"`timeout_ms` is {self.timeout_ms}, and must be 1 or more")
        if self.memory_bytes < SMALLEST_MEMORY:
            found.append(f"`memory_bytes` is {self.memory_bytes}, below {SMALLEST_MEMORY}")
        return found
