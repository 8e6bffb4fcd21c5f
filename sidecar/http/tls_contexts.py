"""TLS by the files of the configuration: ours towards a data source, always verified, and that of a
port of ours. TLS 1.2 or later, HTTP/1.1 only. A certificate that is written anew is taken for the
next handshake: they run out in weeks, and a sidecar runs for months. Knows files and contexts, no
connection."""

import logging
import ssl
from pathlib import Path
from typing import Any

from sidecar.settings.model import Pair, UpstreamTls

log = logging.getLogger(__name__)

_PROTOCOLS = ["http/1.1"]
_NO_PASSWORD = ""

Stamp = tuple[int, ...]


class ReloadingContext(ssl.SSLContext):
    """A context whose own certificate, where it has one, is read again when it is written anew."""

    pair: Pair | None = None
    stamp: Stamp = ()

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Each handshake begins here, on either event loop."""
        if self.pair is not None:
            self._renew(self.pair)
        return super().wrap_bio(*given, **named)

    def show(self, pair: Pair) -> None:
        """Raises `ValueError`."""
        # Together: a certificate without its key would leave nothing that can be shown.
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
        self.stamp = _stamp(pair)
        _load(self, pair)
        self.pair = pair

    def _renew(self, pair: Pair) -> None:
        try:
            stamp = _stamp(pair)
            if stamp != self.stamp:
                self.show(pair)
                log.info("the certificate `%s` was read again", pair.certificate)
        except (OSError, ValueError) as error:
            log.warning("the certificate `%s` stays as it was: %s", pair.certificate, error)


def client_context(tls: UpstreamTls) -> ReloadingContext:
    """What a server is verified by, and what we show it. Raises `ValueError`."""
    context = ReloadingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)
    try:
        # With `ca` the system's own authorities count no more.
        if tls.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"`ca` can't be used: {_said(error)}") from error
    if tls.ca is not None and not context.get_ca_certs():
        raise ValueError("`ca` holds no certificate of an authority")
    if tls.certificate is not None and tls.key is not None:
        context.show(Pair(tls.certificate, tls.key))
    return context


def server_context(pair: Pair) -> ReloadingContext:
    """What a port of ours shows. Raises `ValueError`."""
    context = ReloadingContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_PROTOCOLS)
    context.show(pair)
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    try:
        # Without a password given, an encrypted key would be asked for on the terminal.
        context.load_cert_chain(pair.certificate, pair.key, password=_NO_PASSWORD)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"`certificate` and `key` can't be used: {_said(error)}") from error


def _stamp(pair: Pair) -> Stamp:
    return tuple(number for path in (pair.certificate, pair.key) for number in _of_file(path))


def _of_file(path: Path) -> Stamp:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "they are not PEM").lower().replace("_", " ")
    return (error.strerror or "they can't be read").lower()
