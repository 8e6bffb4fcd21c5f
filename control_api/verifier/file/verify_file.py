"""Verifies an export that can be opened: the walk, and a second reading for ids that may be
repeated."""

from collections.abc import Callable, Set
from typing import BinaryIO

import orjson

from control_api.verifier.file.check import CheckOptions, FileCheck
from control_api.verifier.file.source import LineChunks, pieces
from control_api.verifier.outcome import Outcome
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import plain_entry

MOST = 100


def repeated(open_file: Callable[[], BinaryIO] | None, candidates: Set[int]) -> list[Finding]:
    """The first `MOST` entries whose id an earlier entry has. Without a file that can be read
    again, one finding that says so."""
    if open_file is None:
        message = (
            f"{len(candidates)} ids occur twice; they can't be named, since standard input can't "
            "be read a second time"
        )
        return [Finding(None, Reason.DUPLICATE_ID, message)]
    seen: dict[str, int] = {}
    found: list[Finding] = []
    with open_file() as file:
        for chunk in LineChunks(pieces(file), lambda _: None):
            for line in chunk.split(b"\n"):
                parts = plain_entry(line, b',"openings":' in line)
                eid, seq = ("", -1) if parts is None else _id(parts.entry)
                if seq < 0 or hash(eid.encode()) not in candidates:
                    continue
                first = seen.setdefault(eid, seq)
                if first != seq and len(found) < MOST:
                    message = f"seq {seq}: has the id `{eid:.80}` of entry {first}"
                    found.append(Finding(seq, Reason.DUPLICATE_ID, message, eid))
    return found


def _id(raw: bytes) -> tuple[str, int]:
    try:
        entry = orjson.loads(raw)
        return entry["eid"], entry["seq"]
    except (ValueError, TypeError, LookupError):
        return "", -1


def verify_file(
    open_file: Callable[[], BinaryIO], subject: str, options: CheckOptions, *, again: bool
) -> Outcome:
    """Verify the export that `open_file` opens. `again` says that it can be opened twice. Raises
    `Unusable` if it is no export at all."""
    with open_file() as file:
        check = FileCheck(LineChunks(pieces(file), options.progress.advance), subject, options)
        outcome, candidates = check.run()
    if candidates:
        for finding in repeated(open_file if again else None, candidates):
            outcome.add(finding)
    options.progress.end()
    return outcome
