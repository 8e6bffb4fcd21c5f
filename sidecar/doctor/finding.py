"""The findings of checks, and their form as text and JSON. Knows no check."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import orjson


class Severity(Enum):
    """How severe a finding is, most severe first."""

    HIGH = "high"
    """A retrieval can bypass the sidecar, or others can act as the agent."""
    MEDIUM = "medium"
    """The same under a further condition; or others can read what is recorded."""
    LOW = "low"
    """More open than necessary, or with less room than it may need."""
    UNKNOWN = "unknown"
    """The check could not look. The doctor does not assume that all is well there."""


class DoctorFinding(NamedTuple):
    """`seen` says what is the case, `why` what it allows, `do` how to fix it. `examine` fills in
    the name of the `check`."""

    severity: Severity
    seen: str
    why: str
    do: str
    check: str = ""


_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


def ordered(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """The findings without duplicates, the most severe first, otherwise in their order."""
    return sorted(dict.fromkeys(findings), key=lambda each: _ORDER[each.severity])


def as_text(findings: Sequence[DoctorFinding]) -> str:
    """The findings for a terminal."""
    if not findings:
        return "found nothing that can bypass this sidecar"
    blocks = [
        f"{each.severity.value}: {each.check}: {each.seen}\n  why: {each.why}\n  do:  {each.do}"
        for each in findings
    ]
    counts = (
        f"{count} {severity.value}"
        for severity in Severity
        if (count := sum(each.severity is severity for each in findings))
    )
    return "\n\n".join([*blocks, f"findings: {', '.join(counts)}"])


def as_json(findings: Sequence[DoctorFinding]) -> str:
    """`{findings: [{check, severity, seen, why, do}]}`."""
    rows = [{**each._asdict(), "severity": each.severity.value} for each in findings]
    return orjson.dumps({"findings": rows}, option=orjson.OPT_INDENT_2).decode()
