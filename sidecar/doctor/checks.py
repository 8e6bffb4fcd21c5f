"""The list of checks, in order. A finding names its check by the name of the function."""

from collections.abc import Callable, Iterable

from policies.ground.doctor_finding import DoctorFinding, ordered
from sidecar.doctor.direct_access import direct, grpc_twins, listeners
from sidecar.doctor.examination import DoctorContext
from sidecar.doctor.files import disk_space, readable, users, writable
from sidecar.doctor.names import broad_hosts, private_names, report_mode, write_actions
from sidecar.doctor.policy_set import escaped_denials, own_key
from sidecar.doctor.redirects import other_users, redirect, udp

Check = Callable[[DoctorContext], Iterable[DoctorFinding]]

CHECKS: tuple[Check, ...] = (
    writable,
    readable,
    users,
    listeners,
    direct,
    grpc_twins,
    redirect,
    udp,
    other_users,
    report_mode,
    private_names,
    broad_hosts,
    write_actions,
    own_key,
    escaped_denials,
    disk_space,
)


def examine(context: DoctorContext) -> list[DoctorFinding]:
    """Run all checks. Returns the findings, the most severe first."""
    return ordered(
        found._replace(check=check.__name__) for check in CHECKS for found in check(context)
    )
