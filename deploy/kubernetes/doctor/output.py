"""Prints findings as text and JSON. Knows no check."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.commands.client import output
from deploy.commands.client.output import safe
from policies.ground.doctor_finding import DoctorFinding, as_lines


def as_text(findings: Sequence[DoctorFinding]) -> str:
    """Return the findings for a terminal. Names in a cluster have many authors, so control
    characters are shown as escapes."""
    if not findings:
        return "found nothing that can pass the governed namespaces by"
    return as_lines(findings, safe)


def as_json(findings: Sequence[DoctorFinding]) -> str:
    """Return `{findings: [{check, severity, seen, why, do}]}`."""
    rows = [
        {
            "check": each.check,
            "severity": each.severity.value,
            "seen": each.seen,
            "why": each.why,
            "do": each.do,
        }
        for each in findings
    ]
    return output.as_json({"findings": rows})
