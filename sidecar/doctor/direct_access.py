"""Checks for connections that should not be possible: from the agent directly to a data source, and
from other hosts to the sidecar's ports.

The first kind is tried from this host, so it also sees network policies and firewalls elsewhere.
`metrics_listen` is exempt from the second check: other hosts are meant to scrape it.
"""

from collections.abc import Iterator
from ipaddress import ip_address

from policies.ground.doctor_finding import DoctorFinding, Severity
from sidecar.doctor.examination import DoctorContext, SourceAddress
from sidecar.doctor.host import Address, Unobservable
from sidecar.doctor.packet_trace import Packet, trace

GRPC_PORTS = {"qdrant": 6334, "weaviate": 50051}
"""The port on which a source of each kind also answers gRPC (`protocols/RULES.md`, gRPC ports)."""


def direct(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report sources that the agent's user can connect to directly."""
    for upstream in context.upstreams:
        if isinstance(upstream.addresses, Unobservable):
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"source `{upstream.source.alias}`: {upstream.addresses}",
                "direct access by the agent can't be tested",
                "run this where the sidecar runs",
            )
            continue
        findings = list(_try_connecting(context, upstream, upstream.port, ""))
        yield from findings or _unanswered(context, upstream)


def grpc_twins(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report gRPC ports of sources that the agent's user can connect to directly, and that no
    setting leads to. `direct` tries those in `upstream` and `grpc`."""
    for upstream in context.upstreams:
        port = GRPC_PORTS.get(upstream.source.kind)
        led_to = {each.port for each in context.upstreams if each.source is upstream.source}
        known = isinstance(upstream.addresses, list)
        if port is not None and port not in led_to and known:
            yield from _try_connecting(context, upstream, port, " for gRPC")


def _unanswered(context: DoctorContext, upstream: SourceAddress) -> Iterator[DoctorFinding]:
    """Report a source that refused the agent's user and does not answer the sidecar's user
    either."""
    agent, port = _agent_uid(context), upstream.port
    tried = [each for each in _known(upstream) if not _is_filtered(context, each, port, agent)]
    # Without a running sidecar, this process's user is the best there is.
    others = sorted((context.sidecar_uids or {context.host.uid()}) - {agent})
    users = ", ".join(f"UID {each}" for each in (agent, *others))
    seen = f"port {port} accepts no connection, tried as {users}"
    for address in tried:
        for uid in others:
            try:
                if context.host.connects(address, port, uid):
                    return
            except Unobservable as error:
                seen = f"port {port} refuses UID {agent}, and no other user was tried: {error}"
    if tried:
        yield DoctorFinding(
            Severity.UNKNOWN,
            f"source `{upstream.source.alias}`: {seen}",
            "a source that is down refuses everyone; the agent may reach it once it is up",
            "start the source and the sidecar, and run this again as root",
        )


def _try_connecting(
    context: DoctorContext, upstream: SourceAddress, port: int, protocol: str
) -> Iterator[DoctorFinding]:
    uid = _agent_uid(context)
    who = f"UID {uid}, " + ("the agent's" if uid == context.agent_uid else "this process's own")
    for address in _known(upstream):
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


def _agent_uid(context: DoctorContext) -> int:
    """Return the user id of the agent. If it is unknown, this process's own stands in for it."""
    return context.host.uid() if context.agent_uid is None else context.agent_uid


def _known(upstream: SourceAddress) -> list[Address]:
    assert not isinstance(upstream.addresses, Unobservable)
    return upstream.addresses


def _is_filtered(context: DoctorContext, address: Address, port: int, uid: int) -> bool:
    """Return whether the packet filter stops a TCP connection of user `uid` to this address and
    port, or redirects it to the sidecar."""
    rules = context.rules.get(address.version)
    if rules is None or isinstance(rules, Unobservable):
        return False
    interfaces = context.host.outgoing_interfaces(address)
    # The user's own group is assumed: `connects` drops all others.
    packets = (Packet("tcp", address, port, uid, uid, interface) for interface in interfaces)
    return not any(trace(rules, packet).passes for packet in packets)


def listeners(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report ports of the sidecar that other hosts can reach."""
    for name, listen, _, keyless, certified in context.ports:
        if _is_loopback(listen.host) or name == "`metrics_listen`":
            continue
        if keyless and certified:
            severity = Severity.MEDIUM
            why = "any client with a certificate of its `client_ca` acts as the agent, keyless"
        elif keyless:
            severity, why = Severity.HIGH, "any client that reaches it acts as the agent, keyless"
        else:
            severity, why = Severity.LOW, "other hosts can try keys, and see /health and /metrics"
        yield DoctorFinding(
            severity,
            f"{name} listens on `{listen}`",
            why,
            f"listen on 127.0.0.1:{listen.port} or [::1]:{listen.port}",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
