"""Names the kinds of records that a spool takes at the moment."""

from enum import StrEnum


class State(StrEnum):
    """`denials_only`: only the reserve is left. `full`: a large denial might not fit; smaller
    ones are recorded until one does not."""

    OPEN = "open"
    DENIALS_ONLY = "denials_only"
    FULL = "full"
    UNWRITABLE = "unwritable"
