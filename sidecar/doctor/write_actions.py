"""Checks whether a rule for AuthZEN actions lets roles write that may read."""

from collections.abc import Iterator

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity

_WRITING = ("write", "delete", "update", "create", "put", "post", "patch")


def write_actions(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report actions that seem to write, and count as reading."""
    for action in context.settings.authzen.actions:
        # A task leaves it to the policies, by `allowed_tasks` and `denied_tasks`.
        if action.task is None and action.name.lower().startswith(_WRITING):
            yield DoctorFinding(
                Severity.MEDIUM,
                f"`authzen.actions` has `{action.name}` without a task",
                "each role may do it to what the role may read",
                "give it a `task`, and name that task in the policies; or remove it",
            )
