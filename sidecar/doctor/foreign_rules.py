"""Reports rules beside those of `sluice redirect` that may redirect first, and rules that can't be
read. Knows the order of chains, and traces no packet."""

from collections.abc import Iterator

from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.packet_filter.iptables import Hook, RuleSet
from sidecar.doctor.packet_filter.nftables import UNREAD

OURS = "inet sluice"
"""The table that `sluice redirect` writes with `nft`."""
_SHOWN = 3


def foreign_rules(version: int, rules: RuleSet) -> Iterator[DoctorFinding]:
    """Report what decides where a connection goes, before our rules or unread."""
    # Chains of other types can only stop what ours would have redirected.
    deciding = [hook for hook in rules.hooks if hook.nat and rules.reachable(hook)]
    for hook in deciding:
        parts = [
            option.name
            for rule in rules.reachable(hook)
            for option in rule.options
            if option.module == UNREAD
        ]
        if parts:
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"rules for IPv{version}: in {_named(hook)}, this can't be read: "
                + "; ".join(list(dict.fromkeys(parts))[:_SHOWN]),
                "a rule that depends on it may let the agent bypass the sidecar",
                f"read it yourself: `nft list table {hook.table}`",
            )
    ours = min((hook for hook in deciding if hook.table == OURS), default=None)
    for hook in deciding:
        if ours is not None and hook.table != OURS and hook.priority <= ours.priority:
            yield DoctorFinding(
                Severity.LOW,
                f"rules for IPv{version}: {_named(hook)} (priority {hook.priority}) comes before "
                f"`{OURS}`",
                "what it redirects does not reach the sidecar, and it may change later",
                "give it a priority above -110, or check that it redirects nothing of the agent's",
            )


def _named(hook: Hook) -> str:
    return f"`{hook.table}`, {hook.chain}"
