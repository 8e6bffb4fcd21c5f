"""Parses packet-filter rules as `iptables-save` and `ip6tables-save` print them."""

import shlex
from dataclasses import dataclass, field
from typing import NamedTuple


class Option(NamedTuple):
    """One condition of a rule, such as `! --uid-owner 1337`. `module` is its match extension,
    empty for conditions that every rule may have."""

    module: str
    name: str
    value: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the packet filter. `target` is the value of `-j` or `-g`, and empty without either;
    `to` is the first port or address that the target names."""

    options: tuple[Option, ...]
    target: str
    to: str = ""
    goto: bool = False


@dataclass(slots=True)
class RuleChain:
    """A chain of rules. `policy` is the verdict at its end: `RETURN` for a chain that the operator
    defined."""

    policy: str
    rules: list[Rule] = field(default_factory=list)


class Hook(NamedTuple):
    """A chain that packets of local processes enter; the chain with the lowest `priority` comes
    first. `nat` is True for a chain that decides where connections go, and False for one that
    decides which packets are stopped."""

    priority: int
    table: str
    chain: str
    nat: bool


@dataclass(slots=True)
class RuleSet:
    """All tables of the packet filter; each is a mapping of chains. `incomplete` is the tool's
    message if rules may be missing here. `of_nf_tables`: these are the tables that `nft` shows
    too."""

    tables: dict[str, dict[str, RuleChain]] = field(default_factory=dict)
    hooks: list[Hook] = field(default_factory=list)
    incomplete: str = ""
    of_nf_tables: bool = False

    def outgoing(self, *, nat_only: bool = False) -> list[Rule]:
        """Return every rule that may apply to a packet sent by a local process."""
        hooks = [hook for hook in self.hooks if hook.nat or not nat_only]
        return [rule for hook in hooks for rule in self.reachable(hook)]

    def reachable(self, hook: Hook) -> list[Rule]:
        """Return the rules that packets may meet after they enter the filter at `hook`."""
        chains = self.tables.get(hook.table, {})
        found: list[Rule] = []
        pending, seen = [hook.chain], {hook.chain}
        while pending:
            chain = chains.get(pending.pop())
            for rule in () if chain is None else chain.rules:
                found.append(rule)
                if rule.target not in seen:
                    seen.add(rule.target)
                    pending.append(rule.target)
        return found


_PRIORITIES = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
_LONG = {"-p": "--protocol", "-s": "--source", "-d": "--destination", "-o": "--out-interface"}
_LONG |= {"-i": "--in-interface", "-f": "--fragment"}
_FLAGS = frozenset({"--fragment", "--socket-exists", "--random", "--random-fully", "--persistent"})
"""The options that have no value."""
_TO = ("--to-ports", "--to-destination", "--on-port")


def parse(text: str) -> RuleSet:
    """Parse the output of `iptables-save` or `ip6tables-save`. Raises `ValueError` for a line that
    they would not print."""
    rules = RuleSet()
    chains: dict[str, RuleChain] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            # The kernel has two implementations, and each tool shows only the rules of its own; the
            # other's stay in force unseen.
            if "legacy tables present" in line or "incompatible" in line:
                rules.incomplete = line.lstrip("# ")
            rules.of_nf_tables |= "(nf_tables)" in line
        elif line.startswith("*"):
            table = line[1:].strip()
            chains = rules.tables.setdefault(table, {})
            if table in _PRIORITIES:
                rules.hooks.append(Hook(_PRIORITIES[table], table, "OUTPUT", table == "nat"))
        elif line.startswith(":"):
            name, policy, *_ = line[1:].split()
            chains[name] = RuleChain("RETURN" if policy == "-" else policy)
        elif line.startswith(("-A ", "[")):
            name, rule = _rule(line)
            chains.setdefault(name, RuleChain("RETURN")).rules.append(rule)
        elif line.strip() not in ("", "COMMIT"):
            raise ValueError(f"`{line[:80]}` is not a line of `iptables-save`")
    return rules


def _rule(line: str) -> tuple[str, Rule]:
    words = shlex.split(line)  # comments and log prefixes are quoted
    if words[0].startswith("["):
        del words[0]  # packet and byte counters
    if len(words) < 2 or words[0] != "-A":
        raise ValueError(f"`{line[:80]}` is not a rule")
    chain, words = words[1], words[2:]
    options: list[Option] = []
    module, target, to, goto, negated = "", "", "", False, False
    while words:
        word = _LONG.get(words[0], words[0])
        del words[0]
        if word == "!":
            negated = True
            continue
        value = "" if word in _FLAGS or not words or _is_option(words[0]) else words.pop(0)
        while words and not _is_option(words[0]):
            value += f" {words.pop(0)}"  # a value of two words, as in `--tcp-flags SYN,ACK SYN`
        if word in ("-j", "-g"):
            target, goto = value, word == "-g"
        elif word == "-m":
            module = value
        elif target:  # options after the target belong to it
            to = value if word in _TO else to
        else:
            generic = word in _LONG.values()
            options.append(Option("" if generic else module, word, value, negated))
        negated = False
    return chain, Rule(tuple(options), target, to, goto)


def _is_option(word: str) -> bool:
    return word == "!" or word in _LONG or word.startswith("--") or word in ("-m", "-j", "-g")
