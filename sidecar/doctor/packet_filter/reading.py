"""Reads the packet filter's rules, with `iptables-save` and with `nft`.

The kernel has three places for rules: the tables of `nft`, those that today's `iptables` keeps
among them, and those of `iptables-legacy`. No tool shows all three. Changes nothing, and judges
nothing.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from policies.ground.os_errors import worded
from sidecar.doctor.packet_filter import iptables, nftables
from sidecar.doctor.packet_filter.iptables import RuleSet
from sidecar.doctor.unobservable import Unobservable

_SECONDS = 20.0
_NO_NFTABLES = ("Protocol not supported", "Operation not supported")
"""What `nft` says on a kernel without nf_tables, where it then has no rules either."""
_LEGACY = {4: "net/ip_tables_names", 6: "net/ip6_tables_names"}
"""The files in which the kernel lists the tables of `iptables-legacy`."""


class _Printed(NamedTuple):
    output: str
    error: str


def read_rules(version: int, folders: str, proc: Path) -> RuleSet:
    """The rules of IP version 4 or 6, by the tools in `folders`. Raises `Unobservable` if they
    can't be read."""
    stem = "iptables" if version == 4 else "ip6tables"
    # The plain name first: it is the implementation that the administrator chose.
    names = (f"{stem}-save", f"{stem}-nft-save", f"{stem}-legacy-save")
    save = next(filter(None, (shutil.which(name, path=folders) for name in names)), None)
    nft = shutil.which("nft", path=folders)
    if save is None and nft is None:
        raise Unobservable(f"neither `{stem}-save` nor `nft` is installed")
    rules = _saved(save) if save is not None else _without_save(version, proc)
    if nft is None:
        return rules
    try:
        _add(rules, nftables.parse(_list_ruleset(nft), version))
    except (Unobservable, ValueError) as error:
        if save is None:
            raise Unobservable(str(error)) from error
        rules.incomplete = rules.incomplete or str(error)
    return rules


def _saved(tool: str) -> RuleSet:
    printed = _printed([tool])
    try:
        rules = iptables.parse(printed.output)
    except ValueError as error:
        raise Unobservable(f"`{tool}` can't be used: {error}") from error
    # A tool that may not see the rules can succeed and print none.
    if not rules.tables and os.geteuid() != 0:
        raise Unobservable(f"`{tool}` shows the rules only to root")
    # A warning beside the rules may mean that some are missing.
    if printed.error:
        rules.incomplete = rules.incomplete or printed.error
    return rules


def _without_save(version: int, proc: Path) -> RuleSet:
    rules = RuleSet()
    try:
        legacy = (proc / _LEGACY[version]).read_text().split()
    except FileNotFoundError:
        legacy = []
    except OSError as error:
        legacy = [f"unknown ({worded(error)})"]
    if legacy:
        rules.incomplete = (
            f"tables of `iptables-legacy`, which `nft` can't read: {', '.join(legacy)}"
        )
    return rules


def _list_ruleset(nft: str) -> str:
    try:
        return _printed([nft, "--json", "list", "ruleset"]).output
    except Unobservable as error:
        if any(each in str(error) for each in _NO_NFTABLES):
            return '{"nftables": []}'
        raise


def _add(rules: RuleSet, more: RuleSet) -> None:
    """Add the tables of `nft` that `iptables-save` did not show."""
    # Of its own tables, `iptables-save` shows conditions that `nft` only names.
    shown = {f"{family} {name}" for family in ("ip", "ip6") for name in rules.tables}
    kept = {name for name in more.tables if not (rules.of_nf_tables and name in shown)}
    rules.tables |= {name: chains for name, chains in more.tables.items() if name in kept}
    rules.hooks += [each for each in more.hooks if each.table in kept]
    if "incompatible" in rules.incomplete:
        rules.incomplete = ""  # the table that it could not show is among those of `nft`


def _printed(command: list[str]) -> _Printed:
    """What a tool prints. Raises `Unobservable` if it fails."""
    try:
        ended = subprocess.run(  # noqa: S603  # one of seven names, in the system's folders
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        # Report what it printed: otherwise unreadable rules look like an empty rule set.
        reason = " ".join(error.stderr.split())[:200]
        raise Unobservable(f"`{command[0]}` failed: {reason}") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise Unobservable(f"`{command[0]}` can't be used: {error}") from error
    return _Printed(ended.stdout, " ".join(ended.stderr.split())[:200])
