"""What a check of the cluster found, as text and JSON: the same form as `sidecar.doctor` has. Knows
no check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from deploy.commands.client.output import as_json, safe


class Level(Enum):
    """How severe a finding is, most severe first."""

    HIGH = "high"
    """An agent's retrieval can pass the sidecar by."""
    MEDIUM = "medium"
    """The same under a further condition."""
    LOW = "low"
    """More open than necessary, or worth knowing."""
    UNKNOWN = "unknown"
    """The check could not look. The doctor does not assume that all is well there."""


class ClusterFinding(NamedTuple):
    """`seen` says what is the case, `why` what it allows, `do` how to fix it. `examine` fills in
    the name of the `check`."""

    level: Level
    seen: str
    why: str
    do: str
    check: str = ""


_ORDER = {level: rank for rank, level in enumerate(Level)}


def ordered(findings: Iterable[ClusterFinding]) -> list[ClusterFinding]:
    """The findings without duplicates, the most severe first, otherwise in their order."""
    return sorted(dict.fromkeys(findings), key=lambda each: _ORDER[each.level])


def text(findings: Sequence[ClusterFinding]) -> str:
    """The findings for a terminal. Names in a cluster have many authors, so control characters are
    shown as escapes."""
    if not findings:
        return "found nothing that can pass the governed namespaces by"
    blocks = [
        safe(f"{each.level.value}: {each.check}: {each.seen}")
        + "\n"
        + safe(f"  why: {each.why}")
        + "\n"
        + safe(f"  do:  {each.do}")
        for each in findings
    ]
    counts = (
        f"{count} {level.value}"
        for level in Level
        if (count := sum(each.level is level for each in findings))
    )
    return "\n\n".join([*blocks, f"findings: {', '.join(counts)}"])


def json(findings: Sequence[ClusterFinding]) -> str:
    """`{findings: [{check, severity, seen, why, do}]}`."""
    rows = [
        {
            "check": each.check,
            "severity": each.level.value,
            "seen": each.seen,
            "why": each.why,
            "do": each.do,
        }
        for each in findings
    ]
    return as_json({"findings": rows})
