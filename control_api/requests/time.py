"""Times in requests: any form of RFC 3339, turned into the log's own."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from policies.ground.canonical import rfc3339

# RFC 3339, section 5.6. The log itself always writes six fraction digits and `Z`. Without `re.A`,
# `\d` would match digits of other scripts too.
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.A
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def log_time(text: str) -> str:
    """The time in the log's own form, without the digits beyond a microsecond. Raises `ValueError`
    for anything else."""
    try:
        # `fromisoformat` alone also takes dates, weeks, and times without an offset.
        if _TIMESTAMP.match(text) is None:
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
        # In integers: `timestamp()` is a float, which can be off by a microsecond.
        return rfc3339((moment - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise ValueError(f"must be an RFC 3339 time, such as `{rfc3339(0)}`") from None


Time = Annotated[str, AfterValidator(log_time), Field(json_schema_extra={"format": "date-time"})]
