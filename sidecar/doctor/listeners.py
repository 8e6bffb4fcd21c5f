"""Checks whether other hosts can reach the sidecar's ports. `metrics_listen` is exempt: it serves
only numbers, and other hosts are meant to scrape it."""

from collections.abc import Iterator
from ipaddress import ip_address

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity


def listeners(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report ports that other hosts can reach."""
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
