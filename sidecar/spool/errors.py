"""The errors raised if a record is not stored, or if the spool can't be opened. A request whose
record is not stored gets a 503 with the error's message, so the message shows no path; operators
find the details in the log."""

from enum import StrEnum

from policies.ground.errors import Unavailable


class SpoolError(Unavailable):
    """the record of this request can't be kept, so nothing was decided"""


class SpoolFull(SpoolError):
    """the spool is full: nothing can be recorded until it has room"""


class SpoolUnwritable(SpoolError):
    """the spool can't be written"""


class SpoolSlow(SpoolError):
    """the disk did not take the record in time"""

    # The record may still become durable, and is then in the log although the request was answered
    # with 503. An extra decision in the log is harmless; a missing one is not.


class RecordTooLarge(SpoolError):
    """the record is larger than the spool takes"""


class SpoolLocked(SpoolError):
    """another process holds the spool"""


class State(StrEnum):
    """The kinds of records that the spool accepts at the moment. `denials_only`: only the reserve
    is left. `full`: the largest denial might not fit; smaller ones are recorded until one does not
    fit."""

    OPEN = "open"
    DENIALS_ONLY = "denials_only"
    FULL = "full"
    UNWRITABLE = "unwritable"
