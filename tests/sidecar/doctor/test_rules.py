"""What happens to a packet by rules that real tools wrote, recorded from a real kernel."""

from ipaddress import ip_address

import pytest

from sidecar.doctor.iptables import Option, RuleSet, parse
from sidecar.doctor.packet_trace import Packet, TraceResult, trace
from tests.sidecar.doctor.recorded_host import AGENT, SIDECAR, recorded

FAR, FAR6 = "203.0.113.9", "2001:db8::9"
PASSES = TraceResult(frozenset(), passes=True)
STOPPED = TraceResult(frozenset(), passes=False)


def to(port: str) -> TraceResult:
    return TraceResult(frozenset({port}), passes=False)


def packet(
    place: str, port: int, uid: int = AGENT, *, udp: bool = False, gid: int = 7, out: str = "eth0"
) -> Packet:
    return Packet("udp" if udp else "tcp", ip_address(place), port, uid, gid, out)


@pytest.mark.parametrize(
    ("sent", "becomes"),
    [
        (packet(FAR, 443), to("8712")),
        (packet(FAR, 443, 0), to("8712")),
        (packet(FAR, 443, SIDECAR), PASSES),
        (packet(FAR, 443, udp=True), STOPPED),
        (packet(FAR, 53, udp=True), STOPPED),
        (packet(FAR, 53, SIDECAR, udp=True), PASSES),
        (packet("10.96.0.10", 53, udp=True), PASSES),
        (packet("127.0.0.1", 8710, out="lo"), PASSES),
    ],
)
def test_complete_rules_redirect_every_connection(sent: Packet, becomes: TraceResult) -> None:
    assert trace(recorded("complete.iptables"), sent) == becomes


def test_complete_rules_for_the_other_ip_version() -> None:
    rules = recorded("complete.ip6tables")
    assert trace(rules, packet(FAR6, 443)) == to("8712")
    assert trace(rules, packet(FAR6, 443, udp=True)) == STOPPED
    assert trace(rules, packet("::1", 8710, out="lo")) == PASSES
    assert trace(rules, packet("fd00::a", 53, udp=True)) == PASSES


@pytest.mark.parametrize(
    ("sent", "becomes"),
    [
        (packet(FAR, 443), to("15001")),
        (packet("10.20.3.4", 443), PASSES),
        (packet("10.21.3.4", 443), to("15001")),
        (packet(FAR, 5432), PASSES),
        (packet(FAR, 9005), PASSES),
        (packet(FAR, 9011), to("15001")),
        (packet(FAR, 443, 2005), PASSES),
        (packet(FAR, 443, 2011), to("15001")),
        (packet(FAR, 443, gid=1337), PASSES),
        (packet(FAR, 443, udp=True), PASSES),
    ],
)
def test_rules_with_every_kind_of_exception(sent: Packet, becomes: TraceResult) -> None:
    assert trace(recorded("full-of-holes.iptables"), sent) == becomes


def test_only_rules_set_a_mark() -> None:
    rules = recorded("full-of-holes.iptables")
    marked = Packet("tcp", ip_address(FAR), 443, AGENT, 7, mark=7)
    unknown = Packet("tcp", ip_address(FAR), 443, AGENT, 7, mark=None)
    assert trace(rules, marked) == PASSES
    assert trace(rules, unknown) == TraceResult(frozenset({"15001"}), passes=True)


def test_a_policy_of_drop_stops_packets_without_a_rule() -> None:
    rules = recorded("agent-alone.iptables")
    assert trace(rules, packet(FAR, 443, udp=True)) == STOPPED
    assert trace(rules, packet(FAR, 53, udp=True)) == PASSES
    assert trace(rules, packet(FAR, 443)) == to("8712")
    assert trace(rules, packet(FAR, 443, 1001)) == PASSES


def test_without_rules_everything_passes() -> None:
    assert trace(RuleSet(), packet(FAR, 443)) == PASSES


def nat(*lines: str) -> RuleSet:
    return parse("\n".join(["*nat", ":OUTPUT ACCEPT [0:0]", ":OWN - [0:0]", *lines, "COMMIT"]))


@pytest.mark.parametrize(
    ("lines", "becomes"),
    [
        # A condition that is unknown here counts both as true and as false.
        (["-A OUTPUT -m set --match-set x dst -j RETURN", "-A OUTPUT -j REDIRECT"], "both"),
        (["-A OUTPUT -m set --match-set x dst -j REDIRECT"], "both"),
        (["-A OUTPUT -m comment --comment \"a b\" -j REDIRECT"], "turned"),
        (["-A OUTPUT -m state --state RELATED,INVALID -j ACCEPT", "-A OUTPUT -j REDIRECT"],
         "turned"),
        (["-A OUTPUT -m conntrack ! --ctstate NEW -j ACCEPT", "-A OUTPUT -j REDIRECT"], "turned"),
        (["-A OUTPUT -j LOG --log-prefix \"x y\"", "-A OUTPUT -j REDIRECT"], "turned"),
        (["-A OUTPUT -j OWN", "-A OWN -j RETURN", "-A OUTPUT -j REDIRECT"], "turned"),
        (["-A OUTPUT -g OWN", "-A OWN -j RETURN", "-A OUTPUT -j REDIRECT"], "passes"),
        (["-A OUTPUT -o eth1 -j ACCEPT", "-A OUTPUT -o eth+ -j REDIRECT"], "turned"),
        (["-A OUTPUT ! -o lo -j REDIRECT"], "turned"),
        (["-A OUTPUT -p udp -j ACCEPT", "-A OUTPUT -p 6 -j REDIRECT"], "turned"),
        (["-A OUTPUT -m owner --uid-owner somebody -j ACCEPT", "-A OUTPUT -j REDIRECT"], "both"),
        (["-A OUTPUT -d 203.0.113.0/24 -j DNAT --to-destination 127.0.0.1:8712"], "turned"),
        (["-A OUTPUT -p tcp -m tcp --tcp-flags FIN,SYN SYN -j REDIRECT"], "both"),
    ],
)  # fmt: skip
def test_a_rule_is_read_as_the_kernel_would(lines: list[str], becomes: str) -> None:
    told = trace(nat(*lines), packet(FAR, 443))
    assert (bool(told.redirected_to), told.passes) == {
        "both": (True, True),
        "turned": (True, False),
        "passes": (False, True),
    }[becomes]


def test_a_loop_of_chains_ends() -> None:
    rules = nat("-A OUTPUT -j OWN", "-A OWN -j OWN", "-A OWN -j REDIRECT")
    assert trace(rules, packet(FAR, 443)).passes


def test_only_reachable_rules_count() -> None:
    rules = nat("-A OUTPUT -p tcp -j OWN", "-A OWN -j RETURN", "-A PREROUTING -j REDIRECT")
    assert [rule.target for rule in rules.outgoing(nat_only=True)] == ["OWN", "RETURN"]


def test_a_negation_and_a_module_belong_to_their_condition() -> None:
    rules = nat(
        "-A OUTPUT ! -d 10.0.0.0/8 -p tcp -m owner ! --uid-owner 5 -j REDIRECT --to-ports 1"
    )
    [rule] = rules.outgoing(nat_only=True)
    assert rule.options == (
        Option("", "--destination", "10.0.0.0/8", True),
        Option("", "--protocol", "tcp", False),
        Option("owner", "--uid-owner", "5", True),
    )
    assert (rule.target, rule.to) == ("REDIRECT", "1")


@pytest.mark.parametrize("text", ["nonsense", "*nat\n-A", "*nat\n[0:0] -X a", "*nat\n-A OUTPUT 'a"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|No closing"):
        parse(text)


def test_a_warning_about_hidden_rules_is_kept() -> None:
    text = "# Table `own' is incompatible, use 'nft' tool.\n*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
    assert "incompatible" in parse(text).incomplete
