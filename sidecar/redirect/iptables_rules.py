"""The rules as input for `iptables-restore` and `ip6tables-restore`, in a chain of our own, so that
other rules stay as they are. Knows their syntax, and starts no program."""

from sidecar.proxy.tunnel.original_destination import RESERVED, RESERVED_PORT
from sidecar.redirect.plan import PortRange, RedirectPlan

CHAIN = "SLUICE"
HOOKS = {"filter": ("-j", CHAIN), "nat": ("-p", "tcp", "-j", CHAIN)}
"""The condition and target of each table's rule in `OUTPUT`. Filter comes first: until the
redirection is there too, connections fail instead of passing by."""

_OWN = {4: "127.0.0.0/8", 6: "::1/128"}
_REJECT = {4: "icmp-port-unreachable", 6: "icmp6-port-unreachable"}
# A packet of the kernel's own (neighbour discovery, a TCP reset) has no socket, and so no user.
_ANY_USER = "-m owner --uid-owner 0-4294967294"


def script(plan: RedirectPlan, version: int, table: str, *, hooked: bool) -> str:
    """Return the input for one table, which is replaced in one transaction. `hooked`: `OUTPUT` has
    our rule from an earlier run."""
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
    return [
        f"-d {RESERVED[version]} -p tcp --dport {RESERVED_PORT} {to}",
        *_exempt(plan, version),
        f"-p tcp {to}",
    ]


def _refuse(plan: RedirectPlan, version: int) -> list[str]:
    reject = f"-j REJECT --reject-with {_REJECT[version]}"
    return [
        f"-d {RESERVED[version]} -p udp --dport {RESERVED_PORT} {reject}",
        *_exempt(plan, version),
        *(
            f"-d {each} -p udp --dport 53 -j RETURN"
            for each in plan.resolvers
            if each.version == version
        ),
        f"! -p tcp -m conntrack --ctstate NEW,INVALID,UNTRACKED {_ANY_USER} {reject}",
        # TCP that was redirected goes to loopback by now, and never gets here.
        f"-p tcp -m conntrack --ctstate NEW {_ANY_USER} -j REJECT --reject-with tcp-reset",
    ]


def _exempt(plan: RedirectPlan, version: int) -> list[str]:
    return [
        f"-m owner --uid-owner {plan.sidecar_user} -j RETURN",
        f"-d {_OWN[version]} -j RETURN",
        *(f"-p tcp --dport {_ports(each)} -j RETURN" for each in plan.skip_ports),
        *(f"-d {each} -p tcp -j RETURN" for each in plan.skip_networks if each.version == version),
        *(
            f"-d {to} -p tcp --dport {port} -j RETURN"
            for to, port in plan.direct
            if to.version == version
        ),
    ]


def _ports(each: PortRange) -> str:
    return f"{each.first}:{each.last}"
