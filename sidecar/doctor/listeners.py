"""Whether the sidecar can be spoken to from other hosts. `metrics_listen` is not looked at: it
tells numbers alone, and is there to be scraped from elsewhere."""

from collections.abc import Iterator
from ipaddress import ip_address

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity


def listeners(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Ports that are open to more than this host."""
    for name, listen, speaks in scene.doors:
        if _is_loopback(listen.host):
            continue
        if speaks:
            severity, why = Severity.HIGH, "whoever reaches it speaks as the agent, without a key"
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
