"""Checks whether the agent can connect to a data source directly. The check tries it from this
host, so it also sees the effect of network policies and of firewalls elsewhere."""

from collections.abc import Iterator

from sidecar.doctor.context import DoctorContext, SourceAddress
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.host import Address
from sidecar.doctor.packet_filter.packet_trace import Packet, trace
from sidecar.doctor.unobservable import Unobservable

GRPC_PORTS = {"qdrant": 6334, "weaviate": 50051, "milvus": 19530}
"""The port on which a data source of this kind also answers gRPC (data-sources.md R8)."""


def direct(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report sources that the agent's user can connect to."""
    for upstream in context.upstreams:
        if isinstance(upstream.addresses, Unobservable):
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"source `{upstream.source.alias}`: {upstream.addresses}",
                "direct access by the agent can't be tested",
                "run this where the sidecar runs",
            )
            continue
        yield from _try_connecting(context, upstream, upstream.port, "")


def grpc_twins(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report gRPC ports of sources that the agent's user can connect to: the sidecar can't read
    that protocol."""
    for upstream in context.upstreams:
        port = GRPC_PORTS.get(upstream.source.kind)
        if port is not None and not isinstance(upstream.addresses, Unobservable):
            yield from _try_connecting(context, upstream, port, " for gRPC")


def _try_connecting(
    context: DoctorContext, upstream: SourceAddress, port: int, protocol: str
) -> Iterator[DoctorFinding]:
    # If the agent's user is unknown, this process's own stands in for it.
    uid = context.host.uid() if context.agent_uid is None else context.agent_uid
    who = f"UID {uid}, " + ("the agent's" if uid == context.agent_uid else "this process's own")
    assert not isinstance(upstream.addresses, Unobservable)
    for address in upstream.addresses:
        if _is_filtered(context, address, port, uid):
            # A connection that opens would prove nothing: the sidecar may have accepted it.
            continue
        target = f"{f'[{address}]' if address.version == 6 else address}:{port}"
        try:
            connected = context.host.connects(address, port, uid)
        except Unobservable as error:
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"source `{upstream.source.alias}`: no connection to {target} tried: {error}",
                "the agent may be able to bypass the sidecar",
                "run this as root, or as the agent's user",
            )
            continue
        if connected:
            yield DoctorFinding(
                Severity.HIGH,
                f"source `{upstream.source.alias}`: {target} accepts connections{protocol} from "
                f"{who}",
                "the agent can bypass the sidecar: its reads are neither judged nor recorded",
                "restrict the data source, or the network, to connections from the sidecar",
            )


def _is_filtered(context: DoctorContext, address: Address, port: int, uid: int) -> bool:
    """Whether the packet filter redirects such a connection to the sidecar or stops it."""
    rules = context.rules.get(address.version)
    if rules is None or isinstance(rules, Unobservable):
        return False
    interfaces = context.host.outgoing_interfaces(address)
    # The user's own group is assumed: `connects` drops all others.
    packets = (Packet("tcp", address, port, uid, uid, interface) for interface in interfaces)
    return not any(trace(rules, packet).passes for packet in packets)
