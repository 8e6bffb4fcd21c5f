"""The list of checks, in order. A finding names its check by the name of the function."""

from collections.abc import Callable, Iterable

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.direct_access import direct, grpc_twins
from sidecar.doctor.disk_space import disk_space
from sidecar.doctor.escaped_denials import escaped_denials
from sidecar.doctor.files import readable, writable
from sidecar.doctor.finding import DoctorFinding, ordered
from sidecar.doctor.listeners import listeners
from sidecar.doctor.names import broad_hosts, private_names, report_mode
from sidecar.doctor.own_key import own_key
from sidecar.doctor.redirects import other_users, redirect, udp
from sidecar.doctor.users import users
from sidecar.doctor.write_actions import write_actions

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
