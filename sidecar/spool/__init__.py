"""Records on disk between a decision and the control API's log (`audit-trail.md`, Enforcement
points). `README.md` beside this follows one record through it.

    settings    what an operator may set            errors      why a record was not kept
    spool       the face: put, ship, numbers        state       what it takes at the moment
    opening     the parts put together
    tail        numbers, chains, gathers            writer      the thread: one write, one sync
    succession  begins and ends instances           losses      what must be declared
    keeper      tries again after a bad disk        spares      room ahead of need
    backlog     what is to be shipped               readback    records out of the files
    kept        what stays though it is shipped     instance    one chain of records, and its files
    recovery    what a former life left             layout      the names in the directory
    frames      the bytes of a segment              disk        the file operations, all of them
"""

from sidecar.settings.spool import SpoolSettings
from sidecar.spool.errors import (
    RecordTooLarge,
    SpoolError,
    SpoolFull,
    SpoolLocked,
    SpoolSlow,
    SpoolUnwritable,
)
from sidecar.spool.reader import RecordBatch
from sidecar.spool.spool import Placed, Spool
from sidecar.spool.state import State

__all__ = [
    "Placed",
    "RecordBatch",
    "RecordTooLarge",
    "Spool",
    "SpoolError",
    "SpoolFull",
    "SpoolLocked",
    "SpoolSettings",
    "SpoolSlow",
    "SpoolUnwritable",
    "State",
]
