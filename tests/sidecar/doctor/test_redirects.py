"""What the packet filter lets through, by rules that real tools wrote."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from sidecar.doctor.host import ListeningSocket, Unobservable
from sidecar.doctor.iptables import RuleSet, parse
from sidecar.doctor.redirects import SAMPLE
from tests.sidecar.doctor.recorded_host import (
    AGENT,
    SIDECAR,
    SOURCE,
    TEXT,
    RecordedHost,
    bare,
    found,
    observed,
    recorded,
    seen,
)

CHECKS = ("redirect", "udp", "other_users")
COMPLETE = RecordedHost(v4=recorded("complete.iptables"), v6=recorded("complete.ip6tables"))


def told(tmp_path: Path, host: RecordedHost, **changes: int | str | None) -> list[tuple[str, str]]:
    return seen(found(observed(tmp_path, host, **changes), *CHECKS))  # type: ignore[arg-type]


def test_complete_rules_are_no_finding(tmp_path: Path) -> None:
    assert told(tmp_path, COMPLETE) == []
    assert told(tmp_path, COMPLETE, agent_uid=None) == []


def test_without_a_redirect_the_rules_are_not_judged(tmp_path: Path) -> None:
    assert told(tmp_path, bare()) == []
    assert told(tmp_path, RecordedHost(v4=Unobservable("no tool"))) == []


def test_missing_rules_for_ipv6_are_found(tmp_path: Path) -> None:
    findings = told(tmp_path, RecordedHost(v4=recorded("complete.iptables"), v6=RuleSet()))
    assert ("high", f"TCP over IPv6 from UID {AGENT} is not redirected") in findings
    assert (
        "high",
        f"UDP over IPv6 from UID {AGENT} is let through, to ports: 443, 53, others",
    ) in findings
    assert len(findings) == 2


def test_an_ip_version_that_is_not_in_use_needs_no_rules(tmp_path: Path) -> None:
    assert told(tmp_path, RecordedHost(v4=recorded("complete.iptables"))) == []


@pytest.mark.parametrize(
    ("allowed", "severity", "ports"),
    [
        ("-p udp -m udp --dport 443", "high", "443"),
        ("-p udp -m udp --dport 53", "medium", "53"),
        ("-p udp -m udp --dport 1024:65535", "high", "others"),
        ("-p udp", "high", "443, 53, others"),
    ],
)
def test_udp_that_may_pass_is_found(
    tmp_path: Path, allowed: str, severity: str, ports: str
) -> None:
    rules = recorded("complete.iptables")
    more = parse(f"*filter\n-A OUTPUT {allowed} -j ACCEPT\nCOMMIT")
    rules.tables["filter"]["OUTPUT"].rules[:0] = more.outgoing()
    assert told(tmp_path, RecordedHost(v4=rules)) == [
        (severity, f"UDP over IPv4 from UID {AGENT} is let through, to ports: {ports}")
    ]


def test_every_exception_is_found(tmp_path: Path) -> None:
    host = RecordedHost(v4=recorded("full-of-holes.iptables"))
    # These rules redirect to a port of the sidecar, or to none.
    findings = [text for _, text in told(tmp_path, host) if text.startswith("TCP")]
    assert findings == [
        *(
            f"TCP over IPv4 from UID {AGENT} to {place} is not redirected"
            for place in ("port 5432", "port 9000", "port 9010", "10.20.0.0/16")
        ),
        *(
            f"TCP over IPv4 from {who} is not redirected"
            for who in ("UID 2000", "UID 2010", "GID 1337")
        ),
    ]


def test_an_exception_for_a_source_is_more_severe(tmp_path: Path) -> None:
    host = RecordedHost(v4=recorded("full-of-holes.iptables"))
    host.named["kb.test"] = [ip_address("10.20.0.7"), ip_address("203.0.113.80")]
    text = TEXT + SOURCE.replace("127.0.0.1:9", "kb.test:6333")
    high = [text for severity, text in told(tmp_path, host, text=text) if severity == "high"]
    assert high[0] == f"TCP over IPv4 from UID {AGENT} to 10.20.0.7 port 6333 is not redirected"
    assert "203.0.113.80" not in str(high)


def test_an_exempt_user_other_than_the_sidecars_is_found(tmp_path: Path) -> None:
    host = RecordedHost(v4=recorded("complete.iptables"))
    host.sockets = [ListeningSocket(ip_address("127.0.0.1"), port, 99) for port in (8710, 8712)]
    assert told(tmp_path, host) == [
        ("medium", f"TCP over IPv4 from UID {SIDECAR} is not redirected")
    ]


def test_an_agent_that_is_exempt_is_found(tmp_path: Path) -> None:
    findings = told(tmp_path, COMPLETE, agent_uid=SIDECAR)
    assert ("high", f"TCP over IPv4 from UID {SIDECAR} is not redirected") in findings


def test_rules_for_the_agent_alone_exempt_all_other_users(tmp_path: Path) -> None:
    host = RecordedHost(v4=recorded("agent-alone.iptables"))
    assert told(tmp_path, host) == [
        ("medium", f"UDP over IPv4 from UID {AGENT} is let through, to ports: 53"),
        ("medium", f"TCP over IPv4 from every user but UID {AGENT} is not redirected"),
    ]


def test_a_redirect_to_where_no_sidecar_listens_is_found(tmp_path: Path) -> None:
    host = RecordedHost(v4=recorded("complete.iptables"))
    host.sockets = [
        ListeningSocket(ip_address("127.0.0.1"), 8710, SIDECAR),
        ListeningSocket(ip_address("127.0.0.1"), 8712, 99),
    ]
    assert told(tmp_path, host) == [
        ("medium", "TCP over IPv4 is redirected to `8712`, where no sidecar listens")
    ]


def test_incomplete_rules_are_reported(tmp_path: Path) -> None:
    rules = recorded("complete.iptables")
    rules.incomplete = "Warning: iptables-legacy tables present"
    host = RecordedHost(v4=rules, v6=Unobservable("`ip6tables-save` is not installed"))
    assert told(tmp_path, host) == [
        ("unknown", "rules for IPv4: Warning: iptables-legacy tables present"),
        ("unknown", "rules for IPv6: `ip6tables-save` is not installed"),
    ]


def test_the_sample_addresses_are_for_documentation() -> None:
    assert not any(address.is_global for address in SAMPLE.values())
