"""Why a record was not kept. Each is answered with 503: without its record there is no decision.

Messages may reach a caller, so none shows a path; what an operator needs stands in the log.
"""

from policies.ground.errors import Unavailable


class SpoolError(Unavailable):
    """the record of this request can't be kept, so nothing was decided"""


class SpoolFull(SpoolError):
    """the spool is full: records wait for the control API"""


class SpoolUnwritable(SpoolError):
    """the spool can't be written"""


class SpoolSlow(SpoolError):
    """the disk did not take the record in time"""

    # The record may still become durable, and is then in the log although nothing was answered: a
    # decision too many in the log is harmless, one too few is what must not be.


class RecordTooLarge(SpoolError):
    """the record is larger than the spool takes"""


class SpoolLocked(SpoolError):
    """another process holds the spool"""
