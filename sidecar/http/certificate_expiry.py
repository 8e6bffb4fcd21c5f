"""When the certificates that the sidecar presents expire, read from their files. Opens no
connection."""

from collections.abc import Iterable
from pathlib import Path

from sidecar.settings.model import SidecarSettings


def certificates(settings: SidecarSettings) -> tuple[Path, ...]:
    """The files of every certificate that the sidecar presents, as a server or as a client."""
    pairs = [settings.listen_tls]
    pairs += [pair for each in settings.sources for pair in (each.listen_tls, each.terminate)]
    clients = [settings.control_tls, *(each.tls for each in settings.sources)]
    files = [pair.certificate for pair in pairs if pair is not None]
    files += [each.listen_tls.certificate for each in settings.doors if each.listen_tls is not None]
    return tuple(files + [each.certificate for each in clients if each.certificate is not None])


def seconds_left(files: Iterable[Path], now: int) -> float | None:
    """Seconds from `now` (microseconds) until the first of `files` expires, negative afterwards;
    None without a file that can be read."""
    # Read at each scrape, not at each reload: a file that was renewed but is not loaded yet, since
    # no handshake has come, must not raise an alarm.
    left = [each for each in (_expiry(path) for path in files) if each is not None]
    return min(left) - now / 1e6 if left else None


def _expiry(path: Path) -> float | None:
    # Imported late: it takes megabytes, and most sidecars present no certificate.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        # A chain ends no later than its first certificate to expire.
        chain = load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        # Half written, or replaced at this moment. The handshake that loads it logs what is wrong.
        return None
    return min(each.not_valid_after_utc.timestamp() for each in chain)
