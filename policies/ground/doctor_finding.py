"""The findings of `sluice doctor`, which examines a sidecar's host or a cluster, and their form as
text. Knows no check."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    """The severity of a finding, most severe first."""

    HIGH = "high"
    """A retrieval can bypass the sidecar, or others can act as the agent."""
    MEDIUM = "medium"
    """Under a further condition, a retrieval can bypass the sidecar, or others can act as the
    agent; or others can read what is recorded."""
    LOW = "low"
    """Something is more open than necessary, has less room than it may need, or is worth
    knowing."""
    UNKNOWN = "unknown"
    """The check could not look. The doctor does not assume that all is well."""


class DoctorFinding(NamedTuple):
    """One finding of `sluice doctor`. `seen` says what is the case, `why` what it allows, `do` how
    to fix it. `check` is the name of the check, which `examine` fills in."""

    severity: Severity
    seen: str
    why: str
    do: str
    check: str = ""


_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


def ordered(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Return the findings without duplicates, the most severe first, otherwise in their order."""
    return sorted(dict.fromkeys(findings), key=lambda each: _ORDER[each.severity])


def as_lines(findings: Sequence[DoctorFinding], shown: Callable[[str], str] = str) -> str:
    """Return findings as lines for a terminal; the last line counts them by severity. `shown`
    escapes a line."""
    blocks = [
        "\n".join(
            map(
                shown,
                (
                    f"{each.severity.value}: {each.check}: {each.seen}",
                    f"  why: {each.why}",
                    f"  do:  {each.do}",
                ),
            )
        )
        for each in findings
    ]
    counts = (
        f"{count} {severity.value}"
        for severity in Severity
        if (count := sum(each.severity is severity for each in findings))
    )
    return "\n\n".join([*blocks, f"findings: {', '.join(counts)}"])
