"""The checks of users, ports, names and direct access."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from policies.ground.doctor_finding import Severity, ordered
from sidecar.doctor.__main__ import CHECKS
from sidecar.doctor.direct_access import GRPC_PORTS
from sidecar.doctor.examination import DoctorContext, as_json, as_text, observe
from sidecar.doctor.host import Host, ListeningSocket, Unobservable
from sidecar.doctor.iptables import RuleSet
from sidecar.settings.model import Pair, Source
from tests.architecture.tree import ROOT
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
from tests.support.certificates import authority


@pytest.fixture
def open_port() -> Iterator[int]:
    """A data source that accepts connections."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def with_source(port: int, host: str = "127.0.0.1") -> str:
    return TEXT + SOURCE.replace("127.0.0.1:9", f"{host}:{port}")


def of_kind(context: DoctorContext, kind: str, **changes: object) -> DoctorContext:
    """The same context with a source of another kind, even one that the sidecar doesn't speak."""
    [only] = context.settings.sources
    source: Source = replace(only, kind=kind, **changes)  # type: ignore[arg-type]
    return observe(
        replace(context.settings, sources=(source,)), context.file, context.host, context.agent_uid
    )


# ------------------------------------------------------------------------------------------- users


def test_an_agent_with_its_own_user_is_no_finding(tmp_path: Path) -> None:
    assert found(observed(tmp_path), "users") == []


@pytest.mark.parametrize(
    ("agent_uid", "severity", "text"),
    [
        (SIDECAR, "high", f"the sidecar runs as UID {SIDECAR}, the agent's"),
        (0, "high", "the agent is root"),
    ],
)
def test_an_agent_that_could_be_the_sidecar_is_found(
    tmp_path: Path, agent_uid: int, severity: str, text: str
) -> None:
    assert seen(found(observed(tmp_path, agent_uid=agent_uid), "users")) == [(severity, text)]


def test_a_sidecar_that_runs_as_root_is_found(tmp_path: Path) -> None:
    host = bare()
    host.sockets = [ListeningSocket(ip_address("127.0.0.1"), 8710, 0)]
    root = ("medium", "the sidecar runs as root")
    assert seen(found(observed(tmp_path, host), "users")) == [root]
    both = found(observed(tmp_path, host, agent_uid=0), "users")
    assert seen(both) == [("high", "the agent is root"), root]


def test_an_unknown_agent_must_be_named(tmp_path: Path) -> None:
    class AsRoot(RecordedHost):
        def uid(self) -> int:
            return 0

    class AsTheAgent(RecordedHost):
        def uid(self) -> int:
            return AGENT

    host = AsRoot(v4=recorded("complete.iptables"))
    [finding] = found(observed(tmp_path, host, agent_uid=None), "users")
    assert finding.severity == Severity.UNKNOWN
    assert "--agent-uid" in finding.do
    context = observed(tmp_path, AsTheAgent(v4=recorded("complete.iptables")), agent_uid=None)
    assert context.agent_uid == AGENT


@pytest.mark.parametrize(
    ("listen", "address", "is_there"),
    [
        ("127.0.0.1:8710", "127.0.0.1", True),
        ("127.0.0.1:8710", "0.0.0.0", True),
        ("localhost:8710", "::1", True),
        ("[::1]:8710", "::1", True),
        ("*:8710", "0.0.0.0", True),
        ("*:8710", "::", True),
        ("127.0.0.1:8710", "127.0.0.2", False),
    ],
)
def test_the_sidecar_is_identified_by_listening_at_its_address(
    tmp_path: Path, listen: str, address: str, is_there: bool
) -> None:
    host = bare()
    host.sockets = [ListeningSocket(ip_address(address), 8710, SIDECAR)]
    context = observed(tmp_path, host, f"{TEXT}listen: '{listen}'\n")
    assert bool(context.sidecar_uids) is is_there


def test_a_sidecar_that_does_not_run_is_reported(tmp_path: Path) -> None:
    host = bare()
    host.sockets = []
    [finding] = found(observed(tmp_path, host), "users")
    assert finding.severity is Severity.UNKNOWN
    assert "127.0.0.1:8710" in finding.seen


# --------------------------------------------------------------------------------------- listeners


@pytest.mark.parametrize(
    ("host", "found_there"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("0.0.0.0", True),
     ("[::]", True), ("*", True), ("192.0.2.7", True), ("sidecar.test", True)],
)  # fmt: skip
def test_ports_that_other_hosts_reach_are_found(
    tmp_path: Path, host: str, found_there: bool
) -> None:
    text = with_source(9).replace("127.0.0.1:18000", f"'{host}:18000'")
    findings = seen(found(observed(tmp_path, text=text), "listeners"))
    expected = [("high", f"source `kb` listens on `{ListenAddress.parse(f'{host}:18000')}`")]
    assert findings == (expected if found_there else [])


def test_a_port_that_requires_a_key_is_less_severe(tmp_path: Path) -> None:
    text = f"{TEXT}listen: 0.0.0.0:8710\nmetrics_listen: 0.0.0.0:9464\n"
    assert seen(found(observed(tmp_path, text=text), "listeners")) == [
        ("low", "`listen` listens on `0.0.0.0:8710`")
    ]


def test_a_door_that_other_hosts_reach_is_found(tmp_path: Path) -> None:
    pki = authority()
    pair = pki.issue("edge.test")
    tls = f"{{certificate: {pair.certificate}, key: {pair.key}, client_ca: {pki.path}}}"
    speaker = "agent: {role: r}"
    doors = (
        f"{{name: a, key: none, {speaker}, listen: '0.0.0.0:8720', listen_tls: {tls}}}",
        "{name: b, listen: '0.0.0.0:8721'}",
        f"{{name: c, key: none, {speaker}, listen: '127.0.0.1:8722'}}",
    )
    asked = "".join(f"  - {{protocol: envoy_http, source: kb, {each[1:]}\n" for each in doors)
    findings = found(observed(tmp_path, text=f"{with_source(9)}doors:\n{asked}"), "listeners")
    assert seen(findings) == [
        ("medium", "door `a` listens on `0.0.0.0:8720`"),
        ("low", "door `b` listens on `0.0.0.0:8721`"),
    ]


# ------------------------------------------------------------------------------------------- reach


def test_a_source_that_the_agent_can_reach_is_found(tmp_path: Path, open_port: int) -> None:
    host = Host()
    context = observed(tmp_path, host, with_source(open_port), agent_uid=os.geteuid())
    [finding] = found(context, "direct")
    assert finding.severity is Severity.HIGH
    assert f"127.0.0.1:{open_port} accepts connections from UID {os.geteuid()}" in finding.seen


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_a_direct_connection_is_tried_as_the_agent(tmp_path: Path, open_port: int) -> None:
    context = observed(tmp_path, Host(), with_source(open_port), agent_uid=12_345)
    [finding] = found(context, "direct")
    assert "UID 12345, the agent's" in finding.seen
    assert os.geteuid() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_a_finding_names_the_user_that_tried(tmp_path: Path, open_port: int) -> None:
    context = observed(tmp_path, Host(), with_source(open_port), agent_uid=None)
    [finding] = found(context, "direct")
    assert "this process's own" in finding.seen


def test_another_user_can_not_be_tried_without_root(tmp_path: Path, open_port: int) -> None:
    class NotRoot(Host):
        def connects(self, address: object, port: int, uid: int) -> bool:
            raise Unobservable("only root can connect as UID 7")

    context = observed(tmp_path, NotRoot(), with_source(open_port), agent_uid=7)
    [finding] = found(context, "direct")
    assert finding.severity is Severity.UNKNOWN


class OnlyForTheSidecar(RecordedHost):
    """A host on which a source that is up accepts connections from the sidecar's user alone."""

    def connects(self, address: object, port: int, uid: int) -> bool:
        return uid == SIDECAR


def test_a_source_that_only_the_sidecar_reaches_is_no_finding(tmp_path: Path) -> None:
    host = OnlyForTheSidecar(v4=RuleSet())
    assert found(observed(tmp_path, host, with_source(9)), "direct") == []


def test_a_source_that_is_down_is_unknown(tmp_path: Path) -> None:
    findings = found(observed(tmp_path, text=with_source(9)), "direct")
    tried = f"port 9 accepts no connection, tried as UID {AGENT}, UID {SIDECAR}"
    assert seen(findings) == [("unknown", f"source `kb`: {tried}")]


def test_a_source_may_be_down_if_the_sidecar_can_not_be_tried(tmp_path: Path) -> None:
    class NotRoot(RecordedHost):
        def connects(self, address: object, port: int, uid: int) -> bool:
            if uid != AGENT:
                raise Unobservable(f"only root can connect as UID {uid}")
            return False

    context = observed(tmp_path, NotRoot(v4=RuleSet()), with_source(9))
    [(severity, text)] = seen(found(context, "direct"))
    assert severity == "unknown"
    assert text.endswith(f"no other user was tried: only root can connect as UID {SIDECAR}")


def test_a_name_that_does_not_resolve_is_reported(tmp_path: Path) -> None:
    context = observed(tmp_path, text=with_source(9, "kb.invalid"))
    [finding] = found(context, "direct", "private_names")
    assert finding.severity is Severity.UNKNOWN
    assert "kb.invalid" in finding.seen


def test_a_redirected_connection_is_no_finding_unless_the_rules_have_a_hole(
    tmp_path: Path, open_port: int
) -> None:
    class Elsewhere(RecordedHost):
        """A host whose packets to the source leave by a real interface."""

        def outgoing_interfaces(self, _address: object) -> tuple[str, ...]:
            return ("eth0",)

        def connects(self, *_asked: object) -> bool:
            return True

    text = with_source(open_port, "kb.test")
    for name, findings in (("complete", 0), ("full-of-holes", 1)):
        host = Elsewhere(v4=recorded(f"{name}.iptables"))
        host.named["kb.test"] = [ip_address("10.20.0.7")]
        assert len(found(observed(tmp_path, host, text), "direct")) == findings


@pytest.mark.parametrize("kind", sorted(GRPC_PORTS))
def test_an_open_grpc_port_of_the_same_source_is_found(
    tmp_path: Path, open_port: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRPC_PORTS, kind, open_port)
    context = observed(tmp_path, Host(), with_source(9), agent_uid=os.geteuid())
    assert found(context, "grpc_twins") == []
    [finding] = found(of_kind(context, kind), "grpc_twins")
    assert f"127.0.0.1:{open_port} accepts connections for gRPC" in finding.seen
    led_to = of_kind(context, kind, grpc=f"http://127.0.0.1:{open_port}")
    assert found(led_to, "grpc_twins") == []
    [finding] = [each for each in found(led_to, "direct") if each.severity is Severity.HIGH]
    assert f"127.0.0.1:{open_port} accepts connections from" in finding.seen


def test_the_grpc_ports_are_those_of_the_data_sources() -> None:
    assert GRPC_PORTS["qdrant"] == 6334
    assert GRPC_PORTS["weaviate"] == 50051


# ------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("address", "refused"),
    [("10.1.2.3", True), ("127.0.0.1", True), ("169.254.169.254", True), ("100.64.0.1", True),
     ("fd00::1", True), ("224.0.0.1", True), ("64:ff9b::a00:1", True), ("93.184.215.14", False),
     ("2606:2800::1", False)],
)  # fmt: skip
def test_a_name_for_a_private_address_is_found(tmp_path: Path, address: str, refused: bool) -> None:
    host = bare()
    host.named["kb.test"] = [ip_address(address)]
    findings = found(observed(tmp_path, host, with_source(9, "kb.test")), "private_names")
    assert [each.severity.value for each in findings] == (["low"] if refused else [])
    assert all(address in each.seen for each in findings)


@pytest.mark.parametrize(
    ("addresses", "severities"),
    [
        ("[10.1.2.3/32]", []),
        ("[10.1.2.0/24]", []),
        ("[10.0.0.0/8]", ["medium"]),
        ("[10.9.0.0/24]", ["low"]),
        ("[0.0.0.0/0, '::/0']", ["medium", "medium"]),
    ],
)
def test_a_name_that_may_lead_to_many_addresses_is_found(
    tmp_path: Path, addresses: str, severities: list[str]
) -> None:
    host = bare()
    host.named["kb.test"] = [ip_address("10.1.2.3")]
    text = f"{with_source(9, 'kb.test')}    addresses: {addresses}\n"
    findings = found(observed(tmp_path, host, text), "private_names")
    assert [each.severity.value for each in findings] == severities


@pytest.mark.parametrize(
    ("upstream", "changes", "found_there"),
    [
        ("https://github.com", {}, True),
        ("https://bucket.s3.eu-west-1.amazonaws.com", {}, True),
        ("https://storage.googleapis.com", {}, True),
        ("https://notgithub.com", {}, False),
        ("https://kb.test", {"hosts": ("*.cloudfront.net",)}, True),
        ("https://kb.test", {"hosts": ("GitHub.com.:443",)}, True),
        ("http://github.com", {}, False),
        ("https://github.com", {"terminate": Pair(Path("c"), Path("k"))}, False),
    ],
)
def test_a_shared_name_is_found_if_a_name_decides(
    tmp_path: Path, upstream: str, changes: dict[str, object], found_there: bool
) -> None:
    host = bare()
    host.named = {name.partition("://")[2]: [ip_address("127.0.0.1")] for name in [upstream]}
    context = observed(tmp_path, host, with_source(9))
    [only] = context.settings.sources
    made: Source = replace(only, upstream=upstream, **changes)  # type: ignore[arg-type]
    for proxy, expected in ((None, False), (ListenAddress("127.0.0.1", 8711), found_there)):
        settings = replace(context.settings, sources=(made,), forward_proxy=proxy)
        seen_there = observe(settings, context.file, host, AGENT)
        assert bool(found(seen_there, "broad_hosts")) is expected


def test_a_forward_proxy_that_other_hosts_reach_is_found(tmp_path: Path) -> None:
    text = f"{with_source(9)}forward_proxy: 0.0.0.0:8711\n"
    assert seen(found(observed(tmp_path, text=text), "listeners")) == [
        ("high", "`forward_proxy` listens on `0.0.0.0:8711`")
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_literal_address_is_intended(tmp_path: Path, host: str) -> None:
    assert found(observed(tmp_path, text=with_source(9, host)), "private_names") == []


def test_a_source_that_only_reports_is_found(tmp_path: Path) -> None:
    for mode, findings in (("enforce", 0), ("report", 1)):
        text = f"{with_source(9)}    mode: {mode}\n"
        assert len(found(observed(tmp_path, text=text), "report_mode")) == findings


# ----------------------------------------------------------------------------------------- context


def test_every_check_is_in_the_readme() -> None:
    readme = (ROOT / "sidecar" / "doctor" / "README.md").read_text()
    assert not [each.__name__ for each in CHECKS if f"| `{each.__name__}` |" not in readme]


def test_the_most_severe_finding_comes_first_and_none_twice(tmp_path: Path) -> None:
    findings = found(observed(tmp_path, agent_uid=0), "users")
    [worst] = findings
    mild = worst._replace(severity=Severity.UNKNOWN)
    assert ordered([mild, worst, mild]) == [worst, mild]
    assert as_text([worst, mild]).startswith("high: users: the agent is root\n  why: ")
    assert as_text([worst, mild]).endswith("findings: 1 high, 1 unknown")
    assert '"severity": "high"' in as_json([worst])
    assert "found nothing" in as_text([])


def test_an_action_that_writes_and_counts_as_reading_is_found(tmp_path: Path) -> None:
    assert found(observed(tmp_path), "write_actions") == []
    names = [
        "write_file",
        "read",
        "put",
        "POST",
        "patched",
        "delete_soft",
        "overwrite",
        "can_delete",
    ]
    rules = [f"{{name: {name}}}" for name in names] + ["{name: update, task: update}"]
    text = f"{with_source(9)}authzen:\n  actions: [{', '.join(rules)}]\n"
    assert seen(found(observed(tmp_path, text=text), "write_actions")) == [
        ("medium", f"`authzen.actions` has `{name}` without a task")
        for name in ("write_file", "put", "POST", "patched", "delete_soft")
    ]
