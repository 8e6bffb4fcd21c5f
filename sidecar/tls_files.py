"""TLS by the files of the configuration: ours towards a data source, always verified, and that of a
port of ours. TLS 1.2 or later, HTTP/1.1 only. Knows files and contexts, no connection."""

import ssl
from pathlib import Path

from sidecar.settings import Pair, UpstreamTls

_PROTOCOLS = ["http/1.1"]
_NO_PASSWORD = ""


def client_context(tls: UpstreamTls) -> ssl.SSLContext:
    """What a data source is verified by, and what we show it. Raises `ValueError`."""
    try:
        # With `cafile` the system's own authorities count no more.
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"`ca` can't be used: {_said(error)}") from error
    if tls.ca is not None and not context.get_ca_certs():
        raise ValueError("`ca` holds no certificate of an authority")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)
    if tls.certificate is not None and tls.key is not None:
        _load(context, tls.certificate, tls.key)
    return context


def server_context(pair: Pair) -> ssl.SSLContext:
    """What a port of ours shows. Raises `ValueError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_PROTOCOLS)
    _load(context, pair.certificate, pair.key)
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        # Without a password given, an encrypted key would be asked for on the terminal.
        context.load_cert_chain(certificate, key, password=_NO_PASSWORD)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"`certificate` and `key` can't be used: {_said(error)}") from error


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "they are not PEM").lower().replace("_", " ")
    return (error.strerror or "they can't be read").lower()
