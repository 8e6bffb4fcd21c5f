"""Whether the agent can open a connection to a data source itself. It is tried, from where this
runs: what no rule shows, a network policy or a firewall elsewhere, counts as well."""

from collections.abc import Iterator

from sidecar.doctor.context import DoctorContext, SourceAddress
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.host import Address, Unseen
from sidecar.doctor.packet_trace import Packet, fate

TWINS = {"qdrant": 6334, "weaviate": 50051, "milvus": 19530}
"""Where a data source of this kind answers over gRPC as well (data-sources.md R8)."""


def direct(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """The sources themselves."""
    for upstream in scene.upstreams:
        if isinstance(upstream.addresses, Unseen):
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"source `{upstream.source.alias}`: {upstream.addresses}",
                "whether the agent reaches it past the sidecar can't be tried",
                "run this where the sidecar runs",
            )
            continue
        yield from _opens(scene, upstream, upstream.port, "")


def grpc_twins(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """The same sources by their other protocol, which nothing here reads."""
    for upstream in scene.upstreams:
        port = TWINS.get(upstream.source.kind)
        if port is not None and not isinstance(upstream.addresses, Unseen):
            yield from _opens(scene, upstream, port, " for gRPC")


def _opens(
    scene: DoctorContext, upstream: SourceAddress, port: int, what: str
) -> Iterator[DoctorFinding]:
    uid = scene.machine.uid() if scene.agent_uid is None else scene.agent_uid
    who = f"UID {uid}, " + ("the agent's" if uid == scene.agent_uid else "this process's own")
    assert not isinstance(upstream.addresses, Unseen)
    for address in upstream.addresses:
        if _kept_back(scene, address, port, uid):
            continue
        place = f"{f'[{address}]' if address.version == 6 else address}:{port}"
        try:
            opened = scene.machine.connects(address, port, uid)
        except Unseen as error:
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"source `{upstream.source.alias}`: a connection to {place} was not tried: {error}",
                "the agent may reach it past the sidecar",
                "run this as root, or as the agent's user",
            )
            continue
        if opened:
            yield DoctorFinding(
                Severity.HIGH,
                f"source `{upstream.source.alias}`: {place} takes connections{what} of {who}",
                "the agent can read it past the sidecar, unjudged and unrecorded",
                "let the data source, or a network policy, take connections from the sidecar alone",
            )


def _kept_back(scene: DoctorContext, address: Address, port: int, uid: int) -> bool:
    """Whether the packet filter turns such a connection to the sidecar, or stops it: then it would
    prove nothing that it opens."""
    rules = scene.rules.get(address.version)
    if rules is None or isinstance(rules, Unseen):
        return False
    leaves = scene.machine.leaves_by(address)
    packets = (Packet("tcp", address, port, uid, uid, interface) for interface in leaves)
    return not any(fate(rules, packet).passes for packet in packets)
