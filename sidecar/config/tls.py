"""Reads the TLS keys of the settings file. It loads every certificate at once, so that a missing,
damaged or mismatched one is a complaint at the start rather than a failure in the night."""

from importlib.util import find_spec
from pathlib import Path

from policies.definitions.definition import shown
from policies.ground.addresses import RedisUrl
from policies.ground.distribution import how_to_install
from policies.ground.errors import Malformed
from sidecar.config.sections import Section
from sidecar.http.authority import canonical_host
from sidecar.http.tls_contexts import client_context, server_context
from sidecar.settings.model import Pair, UpstreamTls


def pair_of(source: Section, key: str, base: Path) -> Pair | None:
    """Read the certificate that a port presents, from the section `key`; None without the
    section."""
    section = source.section(key)
    if not section.given:
        return None
    pair = Pair(section.path("certificate", base), section.path("key", base))
    section.close()
    if section.complained("certificate") or section.complained("key"):
        return None  # loading the files would only add a second complaint
    try:
        server_context(pair)
    except ValueError as error:
        source.complain(key, str(error))
    return pair


def client_tls(parent: Section, key: str, address: str, base: Path) -> UpstreamTls:
    """Read the section `key`: TLS to the server whose address is the value of `address`, another
    key of `parent`."""
    section = parent.section(key)
    ca = _authorities(section, base)
    own = [_path(section, each, base) for each in ("certificate", "key")]
    tls = UpstreamTls(ca, own[0], own[1], _server_name(section))
    section.close()
    if not section.given:
        return tls
    if not (parent.text(address) or "").startswith("https://"):
        parent.complain(key, f"applies only to https://, and `{address}` does not begin with that")
    elif (tls.certificate is None) != (tls.key is None):
        parent.complain(key, "needs both `certificate` and `key`, or neither")
    else:
        try:
            client_context(tls)
        except ValueError as error:
            parent.complain(key, str(error))
    return tls


def check_redis(top: Section, url: RedisUrl | None) -> None:
    """Check that redis-py is installed, and the TLS files in the options of `redis`, which redis-py
    reads only when it connects."""
    if url is None:
        return
    # redis-py is an extra of the package (pyproject.toml): a sidecar without Redis needs none.
    if find_spec("redis") is None:
        top.complain("redis", f"needs redis-py; {how_to_install('redis')}")
    files = dict(url.options)
    certificate = files.get("ssl_certfile")
    key = files.get("ssl_keyfile", certificate)  # one file may hold both, as in OpenSSL
    if certificate is None and key is not None:
        top.complain("redis", "`ssl_keyfile` needs an `ssl_certfile`; add it to the address")
        return
    ca = files.get("ssl_ca_certs")
    try:
        client_context(UpstreamTls(_file(ca), _file(certificate), _file(key)))
    except ValueError as error:
        top.complain("redis", str(error))


def _file(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _authorities(section: Section, base: Path) -> Path | str | None:
    text = section.text("ca") or ""
    # Where settings arrive without files beside them, as in a pod, the text is in the settings.
    return text if text.lstrip().startswith("-----BEGIN") else _path(section, "ca", base)


def _path(section: Section, key: str, base: Path) -> Path | None:
    text = section.text(key)
    return base / text if text else None


def _server_name(section: Section) -> str | None:
    text = section.text("server_name")
    try:
        return None if text is None else canonical_host(text)
    except Malformed as error:
        section.complain("server_name", f"{shown(text or '')}: {error}")
        return None
