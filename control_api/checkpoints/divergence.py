"""A log that contradicts a checkpoint of its own. Knows no database and no store."""

from policies.ground.errors import SluiceError
from policies.trail.findings import Finding


class Diverged(SluiceError):
    """the log contradicts a checkpoint of its own: it is not signed until an operator decides"""

    status = 409

    finding: Finding
    note: str | None
    """The latest note in the store, if there is one."""

    @classmethod
    def of(cls, tenant_id: str, finding: Finding, note: str | None = None) -> "Diverged":
        """What is wrong with the tenant's log."""
        error = cls(f"the log of tenant `{tenant_id}` has diverged: {finding.text()}")
        error.finding, error.note = finding, note
        return error
