"""What a check found, and how it is told. Knows no check."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import orjson


class Severity(Enum):
    """How bad it is, in the order in which it is told."""

    HIGH = "high"
    """A retrieval can pass the sidecar by, or be made in the agent's name."""
    MEDIUM = "medium"
    """It can, where something else comes to it; or what is recorded can be read by others."""
    LOW = "low"
    """Wider open than it need be."""
    UNKNOWN = "unknown"
    """It could not be looked at. What nobody has looked at is not taken for sound."""


class DoctorFinding(NamedTuple):
    """`seen` says what is there, `why` what may come of it, `do` what ends it. `check` is the
    check's name, which it need not say itself."""

    severity: Severity
    seen: str
    why: str
    do: str
    check: str = ""


_ORDER = {severity: place for place, severity in enumerate(Severity)}


def ordered(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """The worst first, and otherwise as they were found."""
    return sorted(dict.fromkeys(findings), key=lambda each: _ORDER[each.severity])


def as_text(findings: Sequence[DoctorFinding]) -> str:
    """For a terminal."""
    if not findings:
        return "nothing was found that passes this sidecar by"
    told = [
        f"{each.severity.value}: {each.check}: {each.seen}\n  why: {each.why}\n  do:  {each.do}"
        for each in findings
    ]
    counts = (
        f"{count} {severity.value}"
        for severity in Severity
        if (count := sum(each.severity is severity for each in findings))
    )
    return "\n\n".join([*told, f"findings: {', '.join(counts)}"])


def as_json(findings: Sequence[DoctorFinding]) -> str:
    """`{findings: [{check, severity, seen, why, do}]}`."""
    told = [{**each._asdict(), "severity": each.severity.value} for each in findings]
    return orjson.dumps({"findings": told}, option=orjson.OPT_INDENT_2).decode()
