"""Writes the packet-filter rules of a plan, and sets them: with `nft` if it is installed, otherwise
with `iptables` and `ip6tables`. They are in a table or a chain of our own, which is replaced in one
transaction.

Every program is started by its absolute name, without a shell and with an empty environment: this
runs with `CAP_NET_ADMIN`. `proof` tests whether the rules work.
"""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sidecar.proxy.tunnel.redirect_check import RESERVED, RESERVED_PORT
from sidecar.redirect.plan import RedirectPlan

TABLE = "sluice"
NAT_PRIORITY = -110
"""The priority of our redirection. It comes before other redirections (-100), such as a service
mesh's: connections that the agent opens are redirected to us first, and those that the sidecar
opens to the mesh."""

# A packet of the kernel's own (neighbour discovery, a TCP reset) has no socket, and so no user.
_NFT_ANY_USER = "meta skuid 0-4294967294"


def nft_script(plan: RedirectPlan) -> str:
    """Return the input for `nft -f -` that sets the plan's rules."""
    redirect = "\n    ".join(_nft_redirect(plan))
    refuse = "\n    ".join(_nft_refuse(plan))
    # `add` lets `delete` succeed even if there is no table yet. Both and the new table are one
    # transaction, so that rules are in force at every moment.
    return f"""add table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
  chain to_sidecar {{
    type nat hook output priority {NAT_PRIORITY}; policy accept;
    {redirect}
  }}
  chain nothing_else {{
    type filter hook output priority 0; policy accept;
    {refuse}
  }}
}}
"""


def _nft_redirect(plan: RedirectPlan) -> list[str]:
    # INVARIANT: the reserved address stands before the sidecar's exemption. The sidecar's own
    # connection there proves that the rules below it still stand.
    return [
        *(
            f"{_ip(version)} daddr {address} tcp dport {RESERVED_PORT} redirect to :{plan.port}"
            for version, address in RESERVED.items()
        ),
        *_nft_exempt(plan),
        f"meta l4proto tcp redirect to :{plan.port}",
    ]


def _nft_refuse(plan: RedirectPlan) -> list[str]:
    return [
        *(
            f"{_ip(version)} daddr {address} udp dport {RESERVED_PORT} reject"
            for version, address in RESERVED.items()
        ),
        *_nft_exempt(plan),
        *(f"{_ip(each.version)} daddr {each} udp dport 53 accept" for each in plan.resolvers),
        f"{_NFT_ANY_USER} meta l4proto != tcp ct state {{ new, invalid, untracked }} reject",
        # TCP that was redirected goes to loopback by now, and never gets here.
        f"{_NFT_ANY_USER} meta l4proto tcp ct state new reject with tcp reset",
    ]


def _nft_exempt(plan: RedirectPlan) -> list[str]:
    loopback = ["ip daddr 127.0.0.0/8 accept", "ip6 daddr ::1 accept"]
    rules = [f"meta skuid {plan.sidecar_user} accept", *loopback]
    if plan.skip_ports:
        ports = ", ".join(map(str, plan.skip_ports))
        rules.append(f"tcp dport {{ {ports} }} accept")
    for version in (4, 6):
        skipped = [str(each) for each in plan.skip_networks if each.version == version]
        if skipped:
            to = f"{_ip(version)} daddr {{ {', '.join(skipped)} }}"
            rules.append(f"{to} meta l4proto tcp accept")
    rules += [f"{_ip(to.version)} daddr {to} tcp dport {port} accept" for to, port in plan.direct]
    return rules


def _ip(version: int) -> str:
    return "ip" if version == 4 else "ip6"


CHAIN = "SLUICE"
HOOKS = {"filter": ("-j", CHAIN), "nat": ("-p", "tcp", "-j", CHAIN)}
"""The condition and target of our rule in the chain `OUTPUT` of each table. The filter table comes
first: until the redirection is there too, connections fail instead of bypassing the sidecar."""

_OWN = {4: "127.0.0.0/8", 6: "::1/128"}
_REJECT = {4: "icmp-port-unreachable", 6: "icmp6-port-unreachable"}
_IPTABLES_ANY_USER = "-m owner --uid-owner 0-4294967294"


def iptables_script(plan: RedirectPlan, version: int, table: str, *, hooked: bool) -> str:
    """Return the input that replaces our chain in one table. `hooked` is True if `OUTPUT` already
    has our rule."""
    hook = " ".join(HOOKS[table])
    rules = _redirect(plan, version) if table == "nat" else _refuse(plan, version)
    lines = [
        f"*{table}",
        # Empties the chain if it is there.
        f":{CHAIN} - [0:0]",
        *(f"-A {CHAIN} {rule}" for rule in rules),
        *([f"-D OUTPUT {hook}"] if hooked else []),
        # Makes our rule the first again, if another one was inserted before it.
        f"-I OUTPUT 1 {hook}",
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def _redirect(plan: RedirectPlan, version: int) -> list[str]:
    to = f"-j REDIRECT --to-ports {plan.port}"
    # INVARIANT: the reserved address stands before the sidecar's exemption. The sidecar's own
    # connection there proves that the rules below it still stand.
    reserved = f"-d {RESERVED[version]} -p tcp --dport {RESERVED_PORT} {to}"
    return [reserved, *_exempt(plan, version), f"-p tcp {to}"]


def _refuse(plan: RedirectPlan, version: int) -> list[str]:
    reject = f"-j REJECT --reject-with {_REJECT[version]}"
    resolvers = [each for each in plan.resolvers if each.version == version]
    return [
        f"-d {RESERVED[version]} -p udp --dport {RESERVED_PORT} {reject}",
        *_exempt(plan, version),
        *(f"-d {each} -p udp --dport 53 -j RETURN" for each in resolvers),
        f"! -p tcp -m conntrack --ctstate NEW,INVALID,UNTRACKED {_IPTABLES_ANY_USER} {reject}",
        # TCP that was redirected goes to loopback by now, and never gets here.
        f"-p tcp -m conntrack --ctstate NEW {_IPTABLES_ANY_USER} -j REJECT --reject-with tcp-reset",
    ]


def _exempt(plan: RedirectPlan, version: int) -> list[str]:
    direct = [each for each in plan.direct if each.address.version == version]
    return [
        f"-m owner --uid-owner {plan.sidecar_user} -j RETURN",
        f"-d {_OWN[version]} -j RETURN",
        *(f"-p tcp --dport {each.first}:{each.last} -j RETURN" for each in plan.skip_ports),
        *(f"-d {each} -p tcp -j RETURN" for each in plan.skip_networks if each.version == version),
        *(f"-d {to} -p tcp --dport {port} -j RETURN" for to, port in direct),
    ]


FOLDERS = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""The folders in which programs are looked for. Fixed, because another user could set a `PATH`."""
TOOLS = ("nft", "iptables")
_SECONDS = 30.0
MAX_ERROR_CHARS = 500
_LOCK_SECONDS = "20"
"""The seconds that iptables waits for its lock, which another program may hold."""


class RulesFailed(Exception):
    """the rules could not be set; the message says why, and what to do"""


class Ran(NamedTuple):
    code: int
    error: str


Run = Callable[[Sequence[str], str], Ran]
"""A function that runs a program, given its arguments and its input."""


def run(arguments: Sequence[str], given: str) -> Ran:
    try:
        ended = subprocess.run(  # noqa: S603  # an absolute name, and arguments of our own
            arguments, input=given, env={}, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ran(-1, str(error))
    return Ran(ended.returncode, ended.stderr.strip()[:MAX_ERROR_CHARS])


def find(name: str) -> str | None:
    return shutil.which(name, path=FOLDERS)


def apply(
    plan: RedirectPlan, tool: str | None, *, has_ipv6: bool, run: Run = run
) -> tuple[str, list[str]]:
    """Set the rules with `tool`, or with the first tool that is installed. Returns the tool's name,
    and notes for an operator. Raises `RulesFailed`; the rules set so far then stay, and nothing
    bypasses them."""
    chosen = next((each for each in TOOLS if tool in (None, each) and find(each)), None)
    if chosen is None:
        wanted = tool or " or ".join(TOOLS)
        raise RulesFailed(f"{wanted} is not installed in {FOLDERS}: use an image that has it")
    if chosen == "nft":
        _must(run([find("nft") or "", "-f", "-"], nft_script(plan)), "nft")
        return chosen, []
    _iptables(plan, 4, "iptables", run)
    try:
        _iptables(plan, 6, "ip6tables", run)
    except RulesFailed as error:
        # Without an address of its own, the pod can send nothing over IPv6.
        if has_ipv6:
            raise
        return chosen, [f"no rules for IPv6, which this pod does not have ({error})"]
    return chosen, []


def _iptables(plan: RedirectPlan, version: int, name: str, run: Run) -> None:
    one, restore = find(name), find(f"{name}-restore")
    if one is None or restore is None:
        raise RulesFailed(f"`{name}` and `{name}-restore` must both be installed in {FOLDERS}")
    for table, hook in HOOKS.items():
        asked = [one, "-w", _LOCK_SECONDS, "-t", table, "-C", "OUTPUT", *hook]
        hooked = run(asked, "").code == 0
        script = iptables_script(plan, version, table, hooked=hooked)
        _must(run([restore, "-w", _LOCK_SECONDS, "--noflush"], script), f"{name}-restore")


def _must(ran: Ran, name: str) -> None:
    if ran.code:
        raise RulesFailed(
            f"{name} failed ({ran.code}): {ran.error or 'without a message'}. "
            "It needs CAP_NET_ADMIN, and a kernel with connection tracking, NAT and `owner` matches"
        )
