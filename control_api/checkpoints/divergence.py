"""A log that contradicts a checkpoint of its own. Knows no database and no store."""

from policies.ground.errors import SluiceError
from policies.trail.findings import Finding


class Diverged(SluiceError):
    """the log contradicts a checkpoint of its own: it is not signed until an operator decides"""

    status = 409

    def __init__(self, tenant_id: str, finding: Finding, note: str | None = None) -> None:
        """`note` is the latest one in the store, if there is one."""
        super().__init__(f"the log of tenant `{tenant_id}` has diverged: {finding.text()}")
        self.finding = finding
        self.note = note
