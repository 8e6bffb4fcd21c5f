"""Verifies an export that can be opened: the walk, and a second reading if ids may be repeated."""

from collections.abc import Callable
from typing import BinaryIO

from control_api.verifier.file.check import CheckOptions, FileCheck
from control_api.verifier.file.repeated_ids import repeated
from control_api.verifier.file.source import LineChunks, pieces
from control_api.verifier.outcome import Outcome


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
