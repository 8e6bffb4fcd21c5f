"""Packet-filter rules as `iptables-save` and `ip6tables-save` write them. Pure.

Knows the form of the text, and which words a rule may be made of. Knows nothing of packets.
"""

import shlex
from dataclasses import dataclass, field
from typing import NamedTuple


class Option(NamedTuple):
    """One condition of a rule, such as `! --uid-owner 1337`. `module` is the match extension in
    which it stands, empty for those of the packet itself."""

    module: str
    name: str
    value: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """`target` is what follows `-j` or `-g`, empty where nothing does; `to` the first port or
    address that the target names."""

    options: tuple[Option, ...]
    target: str
    to: str = ""
    goto: bool = False


@dataclass(slots=True)
class RuleChain:
    """`policy` is what becomes of a packet at its end; `RETURN` for one of the operator's own."""

    policy: str
    rules: list[Rule] = field(default_factory=list)


@dataclass(slots=True)
class RuleSet:
    """All tables, each a mapping of chains. `partly` says why there may be rules that are not
    here, in the words of the tool."""

    tables: dict[str, dict[str, RuleChain]] = field(default_factory=dict)
    partly: str = ""

    def outgoing(self, *tables: str) -> list[Rule]:
        """Every rule that a packet which a process here sends may come by."""
        return [rule for table in tables for rule in _below(self.tables.get(table, {}), "OUTPUT")]


def _below(chains: dict[str, RuleChain], begin: str) -> list[Rule]:
    found: list[Rule] = []
    due, seen = [begin], {begin}
    while due:
        chain = chains.get(due.pop())
        for rule in () if chain is None else chain.rules:
            found.append(rule)
            if rule.target not in seen:
                seen.add(rule.target)
                due.append(rule.target)
    return found


_LONG = {"-p": "--protocol", "-s": "--source", "-d": "--destination", "-o": "--out-interface"}
_LONG |= {"-i": "--in-interface", "-f": "--fragment"}
_BARE = frozenset({"--fragment", "--socket-exists", "--random", "--random-fully", "--persistent"})
_TO = ("--to-ports", "--to-destination", "--on-port")


def parse(text: str) -> RuleSet:
    """`ValueError` where a line is none that these tools write."""
    rules = RuleSet()
    chains: dict[str, RuleChain] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            # The other of the two implementations may hold rules that this one does not see.
            if "legacy tables present" in line or "incompatible" in line:
                rules.partly = line.lstrip("# ")
        elif line.startswith("*"):
            chains = rules.tables.setdefault(line[1:].strip(), {})
        elif line.startswith(":"):
            name, policy, *_ = line[1:].split()
            chains[name] = RuleChain("RETURN" if policy == "-" else policy)
        elif line.startswith(("-A ", "[")):
            name, rule = _rule(line)
            chains.setdefault(name, RuleChain("RETURN")).rules.append(rule)
        elif line.strip() not in ("", "COMMIT"):
            raise ValueError(f"not a line of `iptables-save`: {line[:80]!r}")
    return rules


def _rule(line: str) -> tuple[str, Rule]:
    words = shlex.split(line)
    if words[0].startswith("["):
        del words[0]  # counters
    if len(words) < 2 or words[0] != "-A":
        raise ValueError(f"not a rule: {line[:80]!r}")
    chain, words = words[1], words[2:]
    options: list[Option] = []
    module, target, to, goto, negated = "", "", "", False, False
    while words:
        word = _LONG.get(words[0], words[0])
        del words[0]
        if word == "!":
            negated = True
            continue
        value = "" if word in _BARE or not words or _begins(words[0]) else words.pop(0)
        while words and not _begins(words[0]):
            value += f" {words.pop(0)}"  # a flag with two words, such as `--tcp-flags SYN,ACK SYN`
        if word in ("-j", "-g"):
            target, goto = value, word == "-g"
        elif word == "-m":
            module = value
        elif target:
            to = value if word in _TO else to
        else:
            own = word in _LONG.values()
            options.append(Option("" if own else module, word, value, negated))
        negated = False
    return chain, Rule(tuple(options), target, to, goto)


def _begins(word: str) -> bool:
    return word == "!" or word in _LONG or word.startswith("--") or word in ("-m", "-j", "-g")
