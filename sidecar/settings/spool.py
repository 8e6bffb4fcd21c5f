"""The settings for the spool, with a sentence per field. Knows no files and no YAML."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

SpoolMode = Literal["durable", "strict", "best_effort"]
"""When a response is sent, relative to its record (`FORMAT.md`, Enforcement points)."""
SPOOL_MODES: tuple[SpoolMode, ...] = get_args(SpoolMode)

MIN_SEGMENT_BYTES = 1024 * 1024
MIN_MEMORY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Where records wait for the control API, and what happens when one can't be stored."""

    dir: Path
    """The directory of the spool; one sidecar alone uses it, and creates it with mode 0700 if it
    does not exist."""
    mode: SpoolMode = "durable"
    """`durable` responds once the record is on disk; `strict` does too, but responds 503 after
    `timeout_ms`; `best_effort` responds at once, and counts and reports records that it loses."""
    max_bytes: int = 1024 * 1024 * 1024
    """The most bytes that the directory's segments may take, prepared ones included; when they
    are full, only denials are recorded, in space reserved for them, and then requests fail."""
    segment_bytes: int = 8 * 1024 * 1024
    """The size of one segment file, at least 1 MiB (1048576), zero-filled in advance; two are kept
    ready, and the end of the last one, at least an eighth of it, is reserved for denials."""
    timeout_ms: int = 250
    """How long a record may take to reach the disk in mode `strict`."""
    memory_bytes: int = 16 * 1024 * 1024
    """The most bytes of records that may wait in memory for the disk; beyond that requests fail
    or, in mode `best_effort`, records are lost and counted."""

    def complaints(self) -> dict[str, str]:
        """The settings that can't be used, with a sentence for each."""
        found = {}
        minima = {
            "segment_bytes": MIN_SEGMENT_BYTES,
            "timeout_ms": 1,
            "memory_bytes": MIN_MEMORY_BYTES,
        }
        for key, least in minima.items():
            if getattr(self, key) < least:
                found[key] = f"`{key}` is `{getattr(self, key)}`; the minimum is {least}"
        if self.max_bytes < 3 * self.segment_bytes:
            found["max_bytes"] = (
                f"`max_bytes` is `{self.max_bytes}`; it must hold three segments of "
                f"{self.segment_bytes} bytes: one in use and two ready"
            )
        return found
