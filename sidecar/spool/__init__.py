"""Audit records on local disk, between a decision and the control API's log (`FORMAT.md`,
Enforcement points). `README.md` in this folder follows one record through it.

    spool.py      the public interface: put, ship, acknowledge, figures
    startup.py    opens a directory and builds the components
    recovery.py   reads what the previous process left
    instance.py   one chain of records and its segment files
    resources.py  what the parts share
    errors.py     why a record was not kept
    state.py      what the spool takes at the moment

    writing/      records to disk: appender (number and chain), batcher (when a batch goes to
                  disk), writer (the thread that writes and syncs), instance_rotation (end one
                  instance, begin the next), losses (what a gap record must declare), maintenance
                  (retry after a bad disk), deadlines
    reading/      records from disk to the shipper: backlog, reader, retention, oldest_age
    storage/      files: disk (every file operation), frames (the bytes of a segment), layout (the
                  names in the directory), segment_pool (segments made ahead of need)
"""

from sidecar.settings.sections import SpoolSettings
from sidecar.spool.errors import (
    RecordTooLarge,
    SpoolError,
    SpoolFull,
    SpoolLocked,
    SpoolSlow,
    SpoolUnwritable,
    State,
)
from sidecar.spool.reading.reader import RecordBatch
from sidecar.spool.spool import PlacedRecord, Spool

__all__ = [
    "PlacedRecord",
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
