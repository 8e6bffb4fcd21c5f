"""Sets the rules, with `nft` where it is installed, otherwise with `iptables` and `ip6tables`.

Every program is started by its absolute name, without a shell and with an empty environment: this
runs with `CAP_NET_ADMIN`. Knows the programs. Does not know whether the rules work: `proof` does.
"""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sidecar.redirect import iptables_rules, nft_rules
from sidecar.redirect.plan import RedirectPlan

FOLDERS = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""The folders in which programs are looked for. Fixed, because others could set a `PATH`."""
TOOLS = ("nft", "iptables")
_SECONDS = 30.0
MAX_ERROR_CHARS = 500
_LOCK_SECONDS = "20"
"""The seconds that iptables waits for its lock, which another program may hold."""


class RulesFailed(Exception):
    """the rules could not be set; the message says why, and what to do"""


class Ran(NamedTuple):
    """The result of a program that was run."""

    code: int
    error: str


Run = Callable[[Sequence[str], str], Ran]
"""Runs a program, given its arguments and its input."""


def run(arguments: Sequence[str], given: str) -> Ran:
    try:
        ended = subprocess.run(  # noqa: S603  # an absolute name, and arguments of our own
            arguments,
            input=given,
            env={},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ran(-1, str(error))
    return Ran(ended.returncode, ended.stderr.strip()[:MAX_ERROR_CHARS])


def find(name: str) -> str | None:
    """Return the absolute name of a program."""
    return shutil.which(name, path=FOLDERS)


def apply(
    plan: RedirectPlan, tool: str | None, *, has_ipv6: bool, run: Run = run
) -> tuple[str, list[str]]:
    """Set the rules with `tool`, or with the first one installed. Returns its name and notes for an
    operator. Raises `RulesFailed`; the rules set so far then stay, and let nothing by."""
    chosen = next((each for each in TOOLS if tool in (None, each) and find(each)), None)
    if chosen is None:
        wanted = tool or " or ".join(TOOLS)
        raise RulesFailed(f"{wanted} is not installed in {FOLDERS}: use an image that has it")
    if chosen == "nft":
        _must(run([find("nft") or "", "-f", "-"], nft_rules.script(plan)), "nft")
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
    for table, hook in iptables_rules.HOOKS.items():
        asked = [one, "-w", _LOCK_SECONDS, "-t", table, "-C", "OUTPUT", *hook]
        hooked = run(asked, "").code == 0
        script = iptables_rules.script(plan, version, table, hooked=hooked)
        _must(run([restore, "-w", _LOCK_SECONDS, "--noflush"], script), f"{name}-restore")


def _must(ran: Ran, name: str) -> None:
    if ran.code:
        raise RulesFailed(
            f"{name} failed ({ran.code}): {ran.error or 'without a message'}. "
            "It needs CAP_NET_ADMIN, and a kernel with connection tracking, NAT and `owner` matches"
        )
