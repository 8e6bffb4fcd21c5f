"""The certificates of a settings file. Each is read at once: one that is missing, damaged or of
another key is a complaint, and no failure in the middle of the night. Knows `tls` and the keys that
hold a certificate of ours."""

from pathlib import Path

from policies.ground.errors import Malformed
from policies.ground.redis_url import RedisUrl
from sidecar.config.sections import Section
from sidecar.http.authority import canonical_host
from sidecar.http.tls_contexts import client_context, server_context
from sidecar.settings.model import Pair, UpstreamTls


def pair_of(source: Section, key: str, base: Path) -> Pair | None:
    """A certificate of ours under `key`; None where there is none."""
    section = source.section(key)
    if not section.given:
        return None
    pair = Pair(section.path("certificate", base), section.path("key", base))
    section.close()
    if base in (pair.certificate, pair.key):
        return None  # an absent one has its complaint
    try:
        server_context(pair)
    except ValueError as error:
        source.complain(key, str(error))
    return pair


def client_tls(parent: Section, key: str, address: str, base: Path) -> UpstreamTls:
    """How the server at `address`, a key of `parent`, is spoken to: the section `key`."""
    section = parent.section(key)
    ca, *pair = (_path(section, each, base) for each in ("ca", "certificate", "key"))
    tls = UpstreamTls(ca, pair[0], pair[1], _server_name(section))
    section.close()
    if not section.given:
        return tls
    if not (parent.text(address) or "").startswith("https://"):
        parent.complain(key, f"is for https://, and `{address}` is not")
    elif (tls.certificate is None) != (tls.key is None):
        parent.complain(key, "`certificate` and `key` go together")
    else:
        try:
            client_context(tls)
        except ValueError as error:
            parent.complain(key, str(error))
    return tls


def check_redis(top: Section, url: RedisUrl | None) -> None:
    """The files that the options of `redis` name; redis-py would read them at the first connection
    only."""
    files = dict(url.options) if url is not None else {}
    certificate = files.get("ssl_certfile")
    key = files.get("ssl_keyfile", certificate)  # one file may hold both
    if certificate is None and key is not None:
        top.complain("redis", "`ssl_keyfile` needs an `ssl_certfile`")
        return
    ca = files.get("ssl_ca_certs")
    try:
        client_context(UpstreamTls(_file(ca), _file(certificate), _file(key)))
    except ValueError as error:
        top.complain("redis", str(error))


def _file(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _path(section: Section, key: str, base: Path) -> Path | None:
    text = section.text(key)
    return base / text if text else None


def _server_name(section: Section) -> str | None:
    text = section.text("server_name")
    try:
        return None if text is None else canonical_host(text)
    except Malformed as error:
        section.complain("server_name", str(error))
        return None
