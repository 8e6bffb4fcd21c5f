"""Defines how requests select events: by the values that an event must have, and by places in the
log."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from control_api.edge.requests import Identifier, log_time


class EventValues(BaseModel):
    """The values that an event must have: each is an exact match, and all must match."""

    agent_role: Identifier | None = None
    decision: Literal["ALLOW", "DENY"] | None = None
    source_id: Identifier | None = None
    user_id: Identifier | None = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    policy_name: Identifier | None = None


_SEQ = re.compile(r"[0-9]{1,15}\Z")
_FORMS = [{"pattern": "^[0-9]{1,15}$"}, {"format": "date-time"}]


def _place(text: str) -> str:
    """Validate a place in the log: return a number as it is, and a time in the form that the log
    uses. Raise `ValueError` if the text is neither."""
    if _SEQ.match(text):
        return text
    try:
        return log_time(text)
    except ValueError as error:
        raise ValueError(f"must be a `seq` of at most 15 digits; or else {error}") from None


Place = Annotated[
    str, Field(max_length=64, json_schema_extra={"anyOf": _FORMS}), AfterValidator(_place)
]
FirstEntry = Annotated[
    Place | None,
    Field(
        alias="from",
        description="The first entry: its `seq`, or a time (RFC 3339), which means the first entry "
        "that the control API recorded at or after it. The oldest entry by default.",
    ),
]
EndOfEntries = Annotated[
    Place | None,
    Field(
        alias="to",
        description="Where to stop: the `seq` or time of the first entry that is left out. The end "
        "of the log by default.",
    ),
]
