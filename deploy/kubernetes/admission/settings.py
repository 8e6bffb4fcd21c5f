"""The webhook's settings, with a description of each, which `--help` shows. Also defines the
options that a pod may set by annotations `config.sluice/<option>`.

The settings are read from a mapping, never from the environment itself. All complaints are reported
at once (`SettingsError`), before any port is opened.

The chart checks the values of options in the same way, in CEL (`templates/_refusals.tpl`). An
option has an effect only if the fragment lists it: the chart's values are the allow-list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from policies.ground.addresses import EVERY, ListenAddress
from policies.ground.process.settings_reader import PREFIX, SettingsReader
from policies.ground.settings import SettingsError

WEBHOOK = "WEBHOOK_"
SELF, FILES = "self", "files"
MAX_LEAF_HOURS = 168
"""The longest time for which a certificate may be valid, in hours. `certificates.stored` relies on
it."""
ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
# RFC 1123: what Kubernetes accepts as a name of these kinds of object.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
# Kubernetes sets these in every pod beside a Service called `sluice-webhook`; and the control API
# has a setting that begins like ours.
_FOREIGN = re.compile(r"SLUICE_WEBHOOK_(?:ALLOW|SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_.*)\Z")


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The webhook's settings; each is `SLUICE_WEBHOOK_` and the field's name in capitals."""

    listen: ListenAddress
    """Where reviews are answered, over HTTPS; port 0 lets the system choose."""
    health_listen: ListenAddress
    """Where health and metrics are served, over plain HTTP."""
    template: Path
    """The file of what is injected: the key `injection.yaml` of the chart's ConfigMap."""
    certificates: str
    """`self` makes and renews the certificate in a Secret; `files` reads `tls.crt` and `tls.key`,
    which someone else renews."""
    tls_dir: Path
    """The directory of `tls.crt` and `tls.key` with `files`; read again within 30 seconds."""
    namespace: str
    """The namespace of the Service, the Secret and the Lease."""
    service: str
    """The Service that the API server calls; the certificate is made for its names."""
    secret: str
    """The Secret of the certificate with `self`."""
    configuration: str
    """The MutatingWebhookConfiguration whose `caBundle` is kept up to date with `self`."""
    pod: str
    """This replica's name in the Lease, unique among the replicas."""
    leaf_hours: int
    """How long a certificate made with `self` is valid. It is renewed after half of that."""
    drain_seconds: int
    """How long reviews are still accepted after SIGTERM, until every node has taken this replica
    out of the Service."""
    events: bool
    """Whether a pod's owner gets a Kubernetes Event."""
    api_server: str
    """The API server; default: that of the cluster the process runs in."""
    account_dir: Path
    """The directory of the service account's `token` and `ca.crt`, both read again as they
    change."""

    @property
    def calls_api_server(self) -> bool:
        return self.certificates == SELF or self.events


def names() -> tuple[str, ...]:
    """Return the environment variables that the webhook reads."""
    return tuple(PREFIX + WEBHOOK + field.name.upper() for field in fields(WebhookSettings))


def defaults() -> dict[str, str]:
    """Return the default of each setting inside a cluster, as an operator would write it."""
    settings = read({"KUBERNETES_SERVICE_HOST": "kubernetes.default.svc"})
    values = {field.name: getattr(settings, field.name) for field in fields(WebhookSettings)}
    return {
        name: str(int(value) if isinstance(value, bool) else value)
        for name, value in values.items()
    }


def read(environ: Mapping[str, str]) -> WebhookSettings:
    """Parse the settings in `environ`. Raises `SettingsError` with every complaint."""
    reader = SettingsReader(environ)
    parse = ListenAddress.parse
    settings = WebhookSettings(
        # The API server and the kubelet are on other machines.
        listen=reader.parsed(WEBHOOK + "LISTEN", parse) or ListenAddress(EVERY, 8443),
        health_listen=reader.parsed(WEBHOOK + "HEALTH_LISTEN", parse) or ListenAddress(EVERY, 8701),
        template=Path(reader.text(WEBHOOK + "TEMPLATE", "/etc/sluice/injection/injection.yaml")),
        certificates=reader.choice(WEBHOOK + "CERTIFICATES", (SELF, FILES), SELF),
        tls_dir=Path(reader.text(WEBHOOK + "TLS_DIR", "/etc/sluice/webhook-tls")),
        namespace=_name(reader, "NAMESPACE", "sluice-system"),
        service=_name(reader, "SERVICE", "sluice-webhook"),
        secret=_name(reader, "SECRET", "sluice-webhook-tls"),
        configuration=_name(reader, "CONFIGURATION", "sluice-webhook"),
        pod=_name(reader, "POD", environ.get("HOSTNAME") or "webhook"),
        leaf_hours=reader.number(WEBHOOK + "LEAF_HOURS", 72, 24, MAX_LEAF_HOURS, "hours"),
        drain_seconds=reader.number(WEBHOOK + "DRAIN_SECONDS", 5, 0, 60, "seconds"),
        events=reader.choice(WEBHOOK + "EVENTS", ("0", "1"), "1") == "1",
        api_server=_api_server(reader, environ),
        account_dir=Path(reader.text(WEBHOOK + "ACCOUNT_DIR", ACCOUNT_DIR)),
    )
    if settings.calls_api_server and not settings.api_server:
        reader.complain(
            WEBHOOK + "API_SERVER",
            "is needed outside of a cluster, unless SLUICE_WEBHOOK_CERTIFICATES is `files` and "
            "SLUICE_WEBHOOK_EVENTS is 0",
        )
    reader.refuse_unknown(
        names(), lambda name: name.startswith(PREFIX + WEBHOOK) and not _FOREIGN.match(name)
    )
    if reader.complaints:
        raise SettingsError(reader.complaints)
    return settings


def _name(reader: SettingsReader, setting: str, default: str) -> str:
    name = reader.text(WEBHOOK + setting, default)
    if not _NAME.match(name):
        reader.complain(WEBHOOK + setting, f"`{name[:64]}` is not a name in Kubernetes")
    return name


def _api_server(reader: SettingsReader, environ: Mapping[str, str]) -> str:
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "") or "443"
    bare = f"[{host}]" if ":" in host else host
    url = reader.text(WEBHOOK + "API_SERVER", f"https://{bare}:{port}" if host else "")
    if url and not re.match(r"https://[^/\s@]+\Z", url):
        # The service account's token crosses this connection.
        reader.complain(WEBHOOK + "API_SERVER", f"`{url[:128]}` is not https://host[:port]")
    return url


MAX_LENGTH = 512
MAX_ITEMS = 32
# At most ten digits are matched, so that no huge number is ever converted.
_PORTS = re.compile(r"\A([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_WORD = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join((
    f"({_WORD}:){{7}}{_WORD}",
    f"({_WORD}:){{1,7}}:",
    *(f"({_WORD}:){{1,{before}}}(:{_WORD}){{1,{7 - before}}}" for before in range(1, 7)),
    f":(:{_WORD}){{1,7}}",
    "::",
))  # fmt: skip
# Wider networks than these would leave little to judge.
_NETWORK = re.compile(
    f"({_BYTE}[.]){{3}}{_BYTE}/([89]|[12][0-9]|3[0-2])"
    f"|({_IPV6})/(3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-8])"
)
# `sluice redirect` proves its rules with addresses of these.
_PROOF = (IPv4Network("192.0.2.0/24"), IPv6Network("2001:db8::/32"))
_LEVELS = ("debug", "info", "warning", "error")


def _ports(value: str) -> bool:
    if len(value) > MAX_LENGTH:
        return False
    items = value.split(",")
    return len(items) <= MAX_ITEMS and all(map(_port, items))


def _port(item: str) -> bool:
    match = _PORTS.match(item)
    return match is not None and 1 <= int(match[1]) <= int(match[2] or match[1]) <= 65535


def _networks(value: str) -> bool:
    if len(value) > MAX_LENGTH:
        return False
    items = value.split(",")
    return len(items) <= MAX_ITEMS and all(map(_network, items))


def _network(item: str) -> bool:
    # The form comes first: `ip_network` also takes netmasks, zones and embedded IPv4 addresses.
    if not _NETWORK.fullmatch(item):
        return False
    network = ip_network(item, strict=False)
    return not any(network.version == each.version and network.overlaps(each) for each in _PROOF)


def _level(value: str) -> bool:
    return value in _LEVELS


def _flag(value: str) -> bool:
    return value in ("true", "false")


NATIVE = "native-sidecar"
"""The option that decides how the sidecar runs: as a native sidecar (an init container that keeps
running), or with `false` as an ordinary container."""

OPTIONS: dict[str, Callable[[str], bool]] = {
    "log-level": _level,
    NATIVE: _flag,
    "skip-outbound-ports": _ports,
    "skip-subnets": _networks,
}
"""Every option that a pod may set, and the function that returns whether a value is valid for
it."""


def fits(option: str, value: object) -> bool:
    """Return whether `value` is valid for the option."""
    return isinstance(value, str) and OPTIONS[option](value)
