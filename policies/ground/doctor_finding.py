"""The findings of `sluice doctor`, of a sidecar's host and of a cluster, and their form as text.
Knows no check."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    """The severity of a finding, most severe first."""

    HIGH = "high"
    """A retrieval can bypass the sidecar, or others can act as the agent."""
    MEDIUM = "medium"
    """The same under a further condition; or others can read what is recorded."""
    LOW = "low"
    """More open than necessary, with less room than it may need, or worth knowing."""
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
    """Return the findings without duplicates, the most severe first, otherwise in their order."""
    return sorted(dict.fromkeys(findings), key=lambda each: _ORDER[each.severity])


def as_lines(findings: Sequence[DoctorFinding], shown: Callable[[str], str] = str) -> str:
    """Return some findings as lines for a terminal, and the number of findings. `shown` escapes a
    line."""
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
