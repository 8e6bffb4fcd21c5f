"""Counts what of a statement's result has left: rows, bytes and their digest, for its lineage."""

import hashlib
from collections.abc import Sequence

from sidecar.postgres.frames import Frame
from sidecar.proxy.postgres.conversation import DATA
from sidecar.proxy.postgres.judge import Result


class Released:
    """What of one statement's result has left."""

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self._digest = hashlib.sha256()

    def count(self, frames: Sequence[Frame]) -> int:
        """Count the rows in `frames`, and return their number."""
        before = self.rows
        for each in frames:
            if each.kind in DATA:
                self.rows += each.messages
                self.size += len(each.raw)
                self._digest.update(each.raw)
        return self.rows - before

    def result(self, sqlstate: str = "") -> Result:
        return Result(self.rows, self.size, self._digest.hexdigest(), sqlstate)
