"""Where a request says that a part of the log begins or ends: a `seq`, or a time."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from control_api.requests.time import log_time

_SEQ = re.compile(r"[0-9]{1,15}\Z")
_FORMS = [{"pattern": "^[0-9]{1,15}$"}, {"format": "date-time"}]


def _place(text: str) -> str:
    """A number as it is, a time in the log's own form."""
    if _SEQ.match(text):
        return text
    try:
        return log_time(text)
    except ValueError as error:
        raise ValueError(f"must be a `seq` of at most 15 digits; or else {error}") from None


Place = Annotated[
    str, Field(max_length=64, json_schema_extra={"anyOf": _FORMS}), AfterValidator(_place)
]
