"""Keeps audit records on local disk, from the decision until the control API has them in its log
(`FORMAT.md`, Enforcement points). `README.md` in this folder follows one record through the
spool."""

from sidecar.settings.sections import SpoolSettings
from sidecar.spool.errors import SpoolError, SpoolFull, SpoolSlow, SpoolUnwritable, State
from sidecar.spool.reading.reader import RecordBatch
from sidecar.spool.spool import PlacedRecord, Spool

__all__ = [
    "PlacedRecord",
    "RecordBatch",
    "Spool",
    "SpoolError",
    "SpoolFull",
    "SpoolSettings",
    "SpoolSlow",
    "SpoolUnwritable",
    "State",
]
