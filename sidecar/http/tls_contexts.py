"""Makes TLS contexts from the files that the configuration names: client contexts, which always
verify the server, and server contexts. Also reads from these files when the certificates that the
sidecar presents expire.

TLS 1.2 or later. A certificate file that changes takes effect at the next handshake,
since certificates expire in weeks and a sidecar runs for months. Opens no connection.
"""

import logging
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from policies.ground.errors import worded
from sidecar.settings.model import Pair, SidecarSettings, UpstreamTls

log = logging.getLogger(__name__)

_NO_PASSWORD = ""

Stamp = tuple[int, ...]


class ReloadingContext(ssl.SSLContext):
    """A TLS context that reloads its own certificate, if it has one, when the files change."""

    pair: Pair | None = None
    stamp: Stamp = ()

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Start TLS on one connection, with the newest certificate. Every handshake starts here, in
        asyncio and uvloop alike."""
        if self.pair is not None:
            self._reload_if_changed(self.pair)
        return super().wrap_bio(*given, **named)

    def use(self, pair: Pair) -> None:
        """Present the certificate and key in `pair` from the next handshake on. Raises `ValueError`
        if they can't be loaded."""
        # Try it in a scratch context first: a failed load could leave this one with a certificate
        # and no matching key, and then no handshake would succeed.
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
        # Stamp before loading: files replaced in between are loaded at the next handshake.
        self.stamp = _stamp(pair)
        _load(self, pair)
        self.pair = pair

    def _reload_if_changed(self, pair: Pair) -> None:
        try:
            stamp = _stamp(pair)
            # The time alone isn't enough: a file may be replaced by an older one.
            if stamp != self.stamp:
                self.use(pair)
                log.info("reloaded the certificate `%s`", pair.certificate)
        except (OSError, ValueError) as error:
            log.warning("keeping the previous certificate of `%s`: %s", pair.certificate, error)


def client_context(tls: UpstreamTls, protocols: Sequence[str] = ("http/1.1",)) -> ReloadingContext:
    """Return a context that verifies the server as the settings `tls` say, presents the client
    certificate that they name, and offers `protocols` to it (ALPN). Raises `ValueError` if a file
    can't be used."""
    context = ReloadingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(protocols))
    # With `ca`, the system's own authorities are not trusted.
    if tls.ca is None:
        context.load_default_certs()
    else:
        _trust(context, tls.ca, "ca")
    if tls.certificate is not None and tls.key is not None:
        context.use(Pair(tls.certificate, tls.key))
    return context


def server_context(
    pair: Pair,
    client_ca: Path | None = None,
    protocols: Sequence[str] = ("h2", "http/1.1"),
) -> ReloadingContext:
    """Return a context for one of the sidecar's ports, which presents the certificate in `pair` and
    speaks `protocols` (ALPN). With `client_ca`, a file of certificate authorities, only clients
    that present a certificate of one of them are served (mTLS). Raises `ValueError` if a file can't
    be used."""
    context = ReloadingContext(ssl.PROTOCOL_TLS_SERVER)
    if client_ca is not None:
        _trust(context, client_ca, "client_ca")
        context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation lets a client spend the sidecar's CPU; compression leaks secrets (CRIME).
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(list(protocols))
    context.use(pair)
    return context


def _trust(context: ssl.SSLContext, ca: Path | str, key: str) -> None:
    """Make `context` trust the certificate authorities in `ca`: a file, or the text of one. Raises
    `ValueError`, which names the setting `key`."""
    try:
        if isinstance(ca, str):
            context.load_verify_locations(cadata=ca)
        else:
            context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"`{key}` can't be used: {_named(ca)}: {_reason(error)}") from error
    # OpenSSL loads a file without any authority silently, and then trusts nothing.
    if not context.get_ca_certs():
        raise ValueError(f"`{key}` can't be used: {_named(ca)} contains no authority's certificate")


def _named(ca: Path | str) -> str:
    return f"`{ca}`" if isinstance(ca, Path) else "the text"


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    try:
        # Without a password argument, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(pair.certificate, pair.key, password=_NO_PASSWORD)
    except (OSError, ssl.SSLError) as error:
        # OpenSSL does not say which of the two files it failed on.
        files = f"`{pair.certificate}`, `{pair.key}`"
        raise ValueError(f"`certificate` and `key` can't be used: {files}: {_reason(error)}") from (
            error
        )


def _stamp(pair: Pair) -> Stamp:
    """Return a value that changes whenever the certificate's or the key's file does."""
    return tuple(number for path in (pair.certificate, pair.key) for number in _file_stamp(path))


def _file_stamp(path: Path) -> Stamp:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").lower().replace("_", " ")
    return worded(error)


def presented_certificates(settings: SidecarSettings) -> tuple[Path, ...]:
    """Return the files of all certificates that the sidecar presents, as a server or as a
    client."""
    pairs = [settings.listen_tls]
    pairs += [pair for each in settings.sources for pair in (each.listen_tls, each.terminate)]
    clients = [settings.control_tls, *(each.tls for each in settings.sources)]
    files = [pair.certificate for pair in pairs if pair is not None]
    files += [each.listen_tls.certificate for each in settings.doors if each.listen_tls is not None]
    return tuple(files + [each.certificate for each in clients if each.certificate is not None])


def certificate_seconds_left(files: Iterable[Path], now: int) -> float | None:
    """Return the seconds from `now` (in microseconds) until the first certificate in `files`
    expires, negative if it has expired; None if no file can be read."""
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
