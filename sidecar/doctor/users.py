"""Checks that agent and sidecar run as different users, and neither as root.

An agent with the sidecar's user, or root, can read the sidecar's keys, stop it, and pass the packet
filter like it.
"""

from collections.abc import Iterator

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.unobservable import Unobservable


def users(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report an agent whose user is unknown, is root, or owns the process on the sidecar's
    address; and a sidecar that runs as root."""
    agent = context.agent_uid
    if agent is None:
        yield DoctorFinding(
            Severity.UNKNOWN,
            "the agent's user is not known",
            "the agent's access can be tested only as its user",
            "add `--agent-uid UID`",
        )
    if agent == 0:
        yield DoctorFinding(
            Severity.HIGH,
            "the agent is root",
            "root can read every key and remove any rule of the packet filter",
            "run the agent as a user of its own, without capabilities",
        )
    if isinstance(context.sockets, Unobservable):
        yield DoctorFinding(
            Severity.UNKNOWN,
            f"the listening sockets can't be read: {context.sockets}",
            "the sidecar may run as the agent's user",
            "run this where the sidecar runs, on Linux",
        )
    elif not context.sidecar_uids:
        yield DoctorFinding(
            Severity.UNKNOWN,
            f"nothing listens on `{context.settings.listen}` in this network namespace",
            "the sidecar may run as the agent's user",
            "start the sidecar, and run this in the same network namespace",
        )
    elif agent in context.sidecar_uids and agent != 0:
        yield DoctorFinding(
            Severity.HIGH,
            f"the sidecar runs as UID {agent}, the agent's",
            "the agent can read the sidecar's keys, stop it, and pass the packet filter like it",
            "run the sidecar as a user of its own",
        )
    if 0 in context.sidecar_uids:
        yield DoctorFinding(
            Severity.MEDIUM,
            "the sidecar runs as root",
            "a fault in the sidecar gives away the whole host, and rules that exempt its user let "
            "every process of root pass",
            "run the sidecar as a user of its own, without capabilities",
        )
