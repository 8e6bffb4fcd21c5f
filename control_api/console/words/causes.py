"""Why calls were denied: the most frequent causes among some denials, each with where those are.
Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from control_api.console.visit import address
from control_api.responses.audit import AuditEvent

SHOWN = 8


class Cause(NamedTuple):
    """Why calls were denied, and where those decisions are."""

    check: str | None
    policy_name: str
    source_id: str
    number: int
    href: str


def causes_of(denials: Iterable[AuditEvent], **fields: str) -> list[Cause]:
    """The most frequent causes; `fields` are those of the search that found the denials."""
    counted = Counter((each.check, each.policy_name, each.source_id) for each in denials)
    search = {"decision": "DENY", **fields}
    return [
        Cause(
            check,
            policy_name,
            source_id,
            number,
            address("/decisions", **{**search, "policy_name": policy_name, "source_id": source_id}),
        )
        for (check, policy_name, source_id), number in counted.most_common(SHOWN)
    ]
