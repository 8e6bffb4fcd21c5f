"""The rules as a script for `nft`: one transaction for both IP versions, which replaces an earlier
one of ours and touches no other table. Knows the syntax of nft(8), and starts no program."""

from sidecar.proxy.tunnel.original_destination import RESERVED, RESERVED_PORT
from sidecar.redirect.plan import RedirectPlan

TABLE = "sluice"
NAT_PRIORITY = -110
"""Before other redirections (-100), such as a service mesh's: what the agent opens is ours first,
and what the sidecar opens is theirs."""

# A packet of the kernel's own (neighbour discovery, a TCP reset) has no socket, and so no user.
_ANY_USER = "meta skuid 0-4294967294"


def script(plan: RedirectPlan) -> str:
    """Return the input of `nft -f -`."""
    redirect = "\n    ".join(_redirect(plan))
    refuse = "\n    ".join(_refuse(plan))
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


def _redirect(plan: RedirectPlan) -> list[str]:
    # INVARIANT: the reserved address stands before the sidecar's exemption. The sidecar's own
    # connection there proves that the rules below it still stand.
    return [
        *(
            f"{_ip(version)} daddr {address} tcp dport {RESERVED_PORT} redirect to :{plan.port}"
            for version, address in RESERVED.items()
        ),
        *_exempt(plan),
        f"meta l4proto tcp redirect to :{plan.port}",
    ]


def _refuse(plan: RedirectPlan) -> list[str]:
    return [
        *(
            f"{_ip(version)} daddr {address} udp dport {RESERVED_PORT} reject"
            for version, address in RESERVED.items()
        ),
        *_exempt(plan),
        *(f"{_ip(each.version)} daddr {each} udp dport 53 accept" for each in plan.resolvers),
        f"{_ANY_USER} meta l4proto != tcp ct state {{ new, invalid, untracked }} reject",
        # TCP that was redirected goes to loopback by now, and never gets here.
        f"{_ANY_USER} meta l4proto tcp ct state new reject with tcp reset",
    ]


def _exempt(plan: RedirectPlan) -> list[str]:
    rules = [
        f"meta skuid {plan.sidecar_user} accept",
        "ip daddr 127.0.0.0/8 accept",
        "ip6 daddr ::1 accept",
    ]
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
