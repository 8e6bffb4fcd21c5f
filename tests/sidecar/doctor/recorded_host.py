"""A sidecar's settings file, and a host with recorded packet-filter rules."""

from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from policies.ground.doctor_finding import DoctorFinding
from policies.ground.keys import make_key
from sidecar.config.file import read
from sidecar.doctor.__main__ import examine
from sidecar.doctor.examination import DoctorContext, observe
from sidecar.doctor.host import Address, Host, ListeningSocket, Unobservable
from sidecar.doctor.iptables import RuleSet, parse

RECORDED = Path(__file__).parent / "recorded"
SIDECAR, AGENT = 1337, 1000
PASSWORD = "p4ssw0rd-of-redis"
KEYS = {name: make_key(name.encode().ljust(32, b"-")) for name in ("sidecar.key", "agent.key")}
TEXT = """\
control: http://127.0.0.1:8700
key_file: sidecar.key
agent: {id: agt, role: analyst, key_file: agent.key}
spool: {dir: spool, max_bytes: 25165824}
"""
SOURCE = """\
sources:
  - alias: kb
    kind: rest
    upstream: http://127.0.0.1:9
    listen: 127.0.0.1:18000
    sensitivity: medium
"""


def recorded(name: str) -> RuleSet:
    return parse((RECORDED / name).read_text())


class RecordedHost(Host):
    """This host, except for its rules, interfaces and listening sockets."""

    def __init__(
        self, *, v4: RuleSet | Unobservable, v6: RuleSet | Unobservable | None = None
    ) -> None:
        super().__init__()
        self.told: dict[int, RuleSet | Unobservable | None] = {4: v4, 6: v6}
        """None for an IP version that is not in use."""
        self.named: dict[str, list[Address]] = {}
        """Names that resolve, besides those that resolve on this host."""
        self.free = 1 << 40
        """The bytes that are free on every disk."""
        self.sockets = [
            ListeningSocket(ip_address("127.0.0.1"), port, SIDECAR) for port in (8710, 8712, 15001)
        ]

    def rules(self, version: int) -> RuleSet:
        told = self.told[version]
        if isinstance(told, Unobservable):
            raise told
        assert told is not None
        return told

    def has_ipv6(self) -> bool:
        return self.told[6] is not None

    def interfaces(self) -> list[str]:
        return ["eth0"]

    def free_bytes(self, path: Path) -> int:
        return self.free

    def listening(self) -> list[ListeningSocket]:
        return self.sockets

    def addresses(self, host: str) -> list[Address]:
        if host.endswith(".invalid"):
            raise Unobservable(f"`{host}` can't be resolved")
        return self.named.get(host) or super().addresses(host)

    def connects(self, address: Address, port: int, uid: int) -> bool:
        return address.is_loopback and super().connects(address, port, self.uid())


def bare() -> RecordedHost:
    """A host without rules and without IPv6."""
    return RecordedHost(v4=RuleSet())


def write(tmp_path: Path, text: str = TEXT) -> Path:
    """The settings file and the keys that it names, accessible only to their owner."""
    for name, text_of in {**KEYS, "sidecar.yaml": text}.items():
        (tmp_path / name).write_text(text_of)
        (tmp_path / name).chmod(0o600)
    return tmp_path / "sidecar.yaml"


def observed(
    tmp_path: Path,
    host: Host | None = None,
    text: str = TEXT,
    agent_uid: int | None = AGENT,
) -> DoctorContext:
    file = write(tmp_path, text)
    return observe(read(file, {}, "host"), file, host or bare(), agent_uid)


def found(context: DoctorContext, *checks: str) -> list[DoctorFinding]:
    """The findings of these checks, or of all."""
    return [each for each in examine(context) if not checks or each.check in checks]


def seen(findings: Iterable[DoctorFinding]) -> list[tuple[str, str]]:
    """Severity and `seen` of each finding."""
    return [(each.severity.value, each.seen) for each in findings]
