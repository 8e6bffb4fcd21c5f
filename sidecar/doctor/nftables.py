"""Parses packet-filter rules as `nft --json list ruleset` prints them (libnftables-json(5)).
Converts them into rules like those of `iptables`, so that one trace follows both. A condition that
can't be read is kept as one that may or may not hold; a statement that can't be read may end the
chain."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address, summarize_address_range
from typing import Any

from sidecar.doctor.iptables import Hook, Option, Rule, RuleChain, RuleSet

_FAMILIES = {4: ("ip", "inet"), 6: ("ip6", "inet")}
UNREAD = "unread"
"""The `module` of a condition that could not be read, so that no trace can decide it."""
MAX_PART = 80
_VERDICTS = {"accept": "ACCEPT", "drop": "DROP", "reject": "REJECT", "return": "RETURN"}
_CHANGING = frozenset({"dynamic", "timeout"})
"""Flags of a set whose elements come and go by themselves."""
_HARMLESS = frozenset({"counter", "log", "notrack", "set", "comment"})
"""Statements that neither decide about a packet nor depend on anything."""
_CONDITIONS = frozenset({"limit", "quota", "ct count", "connlimit"})
"""Statements that apply to some packets only, such as a rate limit."""


Sets = dict[str, list[Any]]
"""The elements of each set of a table, by the set's name."""


class _Unreadable(Exception):
    """a part of a rule has a form that is not known here"""


class _NeverApplies(Exception):
    """the rule is about another IP version"""


@dataclass(slots=True)
class _Draft:
    """The parts of a rule that were read so far, with the named `sets` of its table."""

    version: int
    sets: Sets
    options: list[Option] = field(default_factory=list)

    def condition(self, module: str, name: str, values: list[str], *, negated: bool) -> None:
        self.options.append(Option(module, name, ",".join(values), negated))

    def unknown(self, part: str) -> None:
        self.options.append(Option(UNREAD, part[:MAX_PART], "", negated=False))


def parse(text: str, version: int) -> RuleSet:
    """Parse the tables whose rules apply to packets of IP version 4 or 6 that a local process
    sends. Raises `ValueError` for text in any other form."""
    rules = RuleSet()
    sets: dict[str, Sets] = {}
    try:
        for item in json.loads(text)["nftables"]:
            for kind, wire in item.items():
                if wire.get("family") in _FAMILIES[version]:
                    _take(rules, sets, kind, wire, version)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the output of `nft --json`: {error!r}") from error
    return rules


def chain_name(name: str) -> str:
    """Return the key for a chain. Users choose chains' names freely, so the key has a space, which
    no verdict's key has."""
    return f"chain {name}"


def _take(
    rules: RuleSet, sets: dict[str, Sets], kind: str, wire: dict[str, Any], version: int
) -> None:
    table = f"{wire['family']} {wire.get('table')}"
    if kind == "chain":
        policy = _VERDICTS[wire.get("policy", "accept")] if "hook" in wire else "RETURN"
        name = chain_name(wire["name"])
        rules.tables.setdefault(table, {})[name] = RuleChain(policy)
        if wire.get("hook") == "output":
            rules.hooks.append(Hook(int(wire["prio"]), table, name, wire["type"] == "nat"))
    elif kind == "set" and not _CHANGING.intersection(wire.get("flags", ())):
        sets.setdefault(table, {})[wire["name"]] = wire.get("elem", [])
    elif kind == "rule":
        draft = _Draft(version, sets.get(table, {}))
        chain = rules.tables[table][chain_name(wire["chain"])]
        chain.rules += _rules(wire["expr"], draft)


def _rules(expressions: list[Any], draft: _Draft) -> Iterator[Rule]:
    """Yield a rule of `nft`, converted into rules with a single target each."""
    for each in expressions:
        [(name, wire)] = each.items() if isinstance(each, dict) else [(str(each), None)]
        try:
            target = _statement(draft, name, wire)
        except _NeverApplies:
            return
        except (_Unreadable, KeyError, TypeError, ValueError, AttributeError) as error:
            named = isinstance(error, _Unreadable)
            draft.unknown(f"{name}: {error}" if named else json.dumps(each))
            target = None if name == "match" else Rule((), "ACCEPT")
        if target is not None:
            yield Rule(tuple(draft.options), target.target, target.to, target.goto)


def _statement(draft: _Draft, name: str, wire: Any) -> Rule | None:
    """Return a rule with the statement's target; None if the statement has none. A condition is
    added to `draft` instead."""
    if name == "match":
        _match(draft, wire["op"], wire["left"], wire["right"])
    elif name in _CONDITIONS:
        draft.unknown(json.dumps({name: wire}))
    elif name in _VERDICTS:
        return Rule((), _VERDICTS[name])
    elif name in ("jump", "goto"):
        return Rule((), chain_name(wire["target"]), goto=name == "goto")
    elif name == "redirect":
        return Rule((), "REDIRECT", str((wire or {}).get("port", "")))
    elif name == "dnat":
        return Rule((), "DNAT", f"{wire.get('addr', '')}:{wire.get('port', '')}")
    elif name == "mangle":
        sets_mark = wire["key"] in ({"meta": {"key": "mark"}}, {"ct": {"key": "mark"}})
        return Rule((), "MARK") if sets_mark else None
    elif name not in _HARMLESS:
        raise _Unreadable(json.dumps(wire))
    return None


def _match(draft: _Draft, op: str, left: Any, right: Any) -> None:
    [(kind, wire)] = left.items()
    key = wire.get("protocol", "") + " " + wire["field"] if kind == "payload" else ""
    key = key or f"{kind} {wire['key']}"
    if op not in ("==", "!=") and not (op == "in" and key == "ct state"):
        raise _Unreadable(f"{key} {op}")
    negated = op == "!="
    values = list(_values(right, draft.sets))
    if not values:  # an empty set
        if negated:
            return
        raise _NeverApplies
    match key:
        case "ip daddr" | "ip6 daddr":
            _only(draft, "4" if key == "ip daddr" else "6", negated=False)
            draft.condition("", "--destination", values, negated=negated)
        case "meta nfproto":
            versions = {"ipv4": "4", "ipv6": "6"}
            _only(draft, *(versions[each] for each in values), negated=negated)
        case "tcp dport" | "udp dport":
            protocol = key.partition(" ")[0]
            draft.condition("", "--protocol", [protocol], negated=False)
            draft.condition(protocol, "--dport", values, negated=negated)
        case "th dport":
            draft.condition("multiport", "--dports", values, negated=negated)
        case "meta l4proto":
            draft.condition("", "--protocol", values, negated=negated)
        case "meta skuid" | "meta skgid":
            name = "--uid-owner" if key == "meta skuid" else "--gid-owner"
            draft.condition("owner", name, values, negated=negated)
        case "meta oifname" | "meta oif":
            names = [f"{each[:-1]}+" if each.endswith("*") else each for each in values]
            draft.condition("", "--out-interface", names, negated=negated)
        case "meta mark" if len(values) == 1:
            draft.condition("mark", "--mark", [hex(int(values[0], 0))], negated=negated)
        case "ct state":
            states = [each.upper() for each in values]
            draft.condition("conntrack", "--ctstate", states, negated=negated)
        case _:
            raise _Unreadable(key)


def _only(draft: _Draft, *versions: str, negated: bool) -> None:
    """Raise `_NeverApplies` if the condition limits the rule to the other IP version: a rule of a
    table `inet` may be about one version only, as with `ip daddr != …`."""
    if (str(draft.version) in versions) is negated:
        raise _NeverApplies


def _values(right: Any, sets: Sets) -> Iterator[str]:
    if isinstance(right, list):
        for each in right:
            yield from _values(each, sets)
    elif isinstance(right, dict):
        [(kind, wire)] = right.items()
        if kind == "set":
            yield from _values(wire, sets)
        elif kind == "elem":
            yield from _values(wire["val"], sets)
        elif kind == "prefix":
            yield f"{wire['addr']}/{wire['len']}"
        elif kind == "range" and isinstance(wire[0], int):
            yield f"{wire[0]}-{wire[1]}"
        elif kind == "range":
            yield from map(str, summarize_address_range(*map(ip_address, wire)))
        else:
            raise _Unreadable(f"a value of the form `{kind}`")
    elif str(right).startswith("@"):
        yield from _values(sets[str(right)[1:]], sets)
    elif isinstance(right, bool) or "," in str(right):
        raise _Unreadable(str(right))
    else:
        yield str(right)
