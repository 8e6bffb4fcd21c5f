"""`python -m sidecar.redirect --port PORT --sidecar-user UID`: sets the packet-filter rules and
proves them. The pod's init container `sluice-init` runs this.

Exit code 0 once everything is proven, 1 if a rule can't be set or does not work, 2 for unusable
arguments. The rules stay in any case: even in a pod that fails to start, no connection bypasses
them.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from sidecar.redirect.packet_filter import TOOLS, RulesFailed, apply
from sidecar.redirect.plan import (
    MAX_PORT,
    MAX_USER,
    RedirectPlan,
    UnusablePlan,
    addresses,
    name_servers,
    networks,
    number,
    port_ranges,
)
from sidecar.redirect.proof import NotProven, Unresolved, ipv6_addresses, kubernetes_api, prove

RESOLV_CONF = Path("/etc/resolv.conf")
WHAT_TO_DO = (
    "the pod must not start like this. Check that this container has CAP_NET_ADMIN, that no other "
    "program sets rules in this pod, and that the node's kernel has nf_tables or iptables with NAT "
    "and connection tracking (sidecar/redirect/README.md, Failures)"
)


def main() -> int:
    arguments = _parser().parse_args()
    try:
        plan = _plan(arguments, os.environ)
    except UnusablePlan as error:
        print(f"sluice redirect: {error}", file=sys.stderr)
        return 2
    except Unresolved as error:
        print(f"sluice redirect: {error}; no rule was set", file=sys.stderr)
        return 1
    try:
        tool, notes = apply(plan, arguments.tool, has_ipv6=bool(ipv6_addresses()))
        print(f"rules set with {tool}", flush=True)
        for line in chain(_exemptions(plan, arguments.kubernetes_api), notes, prove(plan)):
            print(line, flush=True)
    except (RulesFailed, NotProven, OSError) as error:
        print(f"sluice redirect: {error}\n{WHAT_TO_DO}", file=sys.stderr)
        return 1
    return 0


def _plan(arguments: argparse.Namespace, environ: Mapping[str, str]) -> RedirectPlan:
    user = number(arguments.sidecar_user, "--sidecar-user", 1, MAX_USER)
    if user == os.geteuid():
        raise UnusablePlan(f"--sidecar-user: this process is user {user} itself; run it as root")

    def chosen(name: str) -> str:
        argument: str | None = getattr(arguments, name)
        return environ.get(f"SLUICE_{name.upper()}", "") if argument is None else argument

    resolvers, api = chosen("resolvers"), arguments.kubernetes_api
    return RedirectPlan(
        port=number(arguments.port, "--port", 1, MAX_PORT),
        sidecar_user=user,
        skip_ports=port_ranges(chosen("skip_outbound_ports")),
        skip_networks=networks(chosen("skip_subnets")),
        kubernetes_api=kubernetes_api(api) if api else (),
        resolvers=addresses(resolvers) if resolvers else name_servers(_resolv_conf()),
    )


def _exemptions(plan: RedirectPlan, api: str | None) -> Iterator[str]:
    """Yield a line for the container's log about each kind of connection that is exempt from the
    redirection, and one if the API server `api` is not exempt because it has no address."""
    named = {
        "DNS passes to": plan.resolvers,
        "not redirected, networks": plan.skip_networks,
        "not redirected, the API server": plan.kubernetes_api,
        "not redirected, ports": plan.skip_ports,
    }
    for title, exempt in named.items():
        if exempt:
            yield f"{title}: {', '.join(map(str, exempt))}"
    if api and not plan.kubernetes_api:
        yield f"`{api}` has no address, so connections to the API server are redirected"


def _resolv_conf() -> str:
    try:
        return RESOLV_CONF.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""  # no resolver is configured, so no DNS query need pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice redirect",
        description="Redirects all TCP of this network namespace to the sidecar, rejects "
        "everything else, and proves it by trying. Needs CAP_NET_ADMIN.",
    )
    add = parser.add_argument
    add("--port", required=True, help="the port of the sidecar's `transparent`")
    add("--sidecar-user", required=True, metavar="UID", help="the only user that is exempt")
    optional = {
        ("--skip-outbound-ports", "PORTS"): "TCP ports that are not redirected, such as "
        "5432,8080-8090 (SLUICE_SKIP_OUTBOUND_PORTS)",
        ("--skip-subnets", "NETWORKS"): "networks to which TCP is not redirected, such as "
        "10.20.0.0/16,fd00:7::/48 (SLUICE_SKIP_SUBNETS)",
        ("--kubernetes-api", "HOST:PORT"): "the cluster's API server, to which TCP is not "
        "redirected",
        ("--resolvers", "ADDRESSES"): "the addresses that take DNS queries, with commas between "
        "them (SLUICE_RESOLVERS; default: the name servers in /etc/resolv.conf)",
    }
    for (name, metavar), about in optional.items():
        add(name, metavar=metavar, help=about)
    about = "the program that sets the rules; default: the first there is"
    add("--tool", choices=TOOLS, help=about)
    return parser


if __name__ == "__main__":
    sys.exit(main())
