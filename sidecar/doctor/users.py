"""Whether the agent is another user than the sidecar: one that is the same, or root, reads the
sidecar's keys, ends it, and is let past the packet filter as it is."""

from collections.abc import Iterator

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.host import Unseen


def users(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Who listens at the sidecar's address, beside who the agent is."""
    agent = scene.agent_uid
    if agent is None:
        yield DoctorFinding(
            Severity.UNKNOWN,
            "nobody said which user the agent is",
            "what the agent can reach can be tried only as the agent",
            "name it: `--agent-uid UID`",
        )
    if agent == 0:
        yield DoctorFinding(
            Severity.HIGH,
            "the agent is root",
            "root reads every key, and takes any rule of the packet filter away",
            "run the agent as a user of its own, without capabilities",
        )
    if isinstance(scene.sockets, Unseen):
        yield DoctorFinding(
            Severity.UNKNOWN,
            f"who listens here can't be seen: {scene.sockets}",
            "the sidecar may run as the agent's own user",
            "run this where the sidecar runs, on Linux",
        )
    elif not scene.uids:
        yield DoctorFinding(
            Severity.UNKNOWN,
            f"nothing listens on `{scene.settings.listen}` in this network namespace",
            "whether the sidecar is another user than the agent can't be told",
            "start the sidecar, and run this in the same network namespace",
        )
    elif agent in scene.uids and agent != 0:
        yield DoctorFinding(
            Severity.HIGH,
            f"the sidecar runs as UID {agent}, the agent's",
            "the agent can read the sidecar's keys, end it, and leave past the packet filter as it",
            "run the sidecar as a user of its own",
        )
