"""The newest segment of a spool that was stopped."""

from __future__ import annotations

from pathlib import Path

from tests.sidecar.spool.running_spool import frames, segments


def overwrite(root: Path, at: int, data: bytes) -> None:
    """Overwrite bytes of the newest segment."""
    path = segments(root)[-1]
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def frames_of(root: Path) -> list[tuple[int, int]]:
    return list(frames(segments(root)[-1].read_bytes()))
