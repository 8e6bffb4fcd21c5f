"""Formats the entries of a report as rows of the page's tables, in HTML.

The values come from callers of the service, so an attacker may have written them to deceive the
reader of the page.
"""

import html
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from deploy.commands.report.evidence import Item
from policies.trail.entry import audit_event, lineage_action, time_of
from policies.trail.fields import FIELDS
from policies.trail.merkle_tree import leaf_hash
from policies.trail.recompute.facts import cited_role

# Letters and marks that show nothing, or only change how others look.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def shown(value: object) -> str:
    """Return a value's text as HTML that can't affect the text around it: the run of text is
    isolated, and marks that change the writing direction are shown by their code numbers."""
    text = value if isinstance(value, str) else str(value)
    return f"<bdi>{''.join(_piece(each) for each in text)}</bdi>"


def _piece(character: str) -> str:
    if " " <= character <= "~":
        return html.escape(character)
    if _is_hidden(character):
        return f'<b class="mark">U+{ord(character):04X}</b>'
    return character


def _is_hidden(character: str) -> bool:
    category = unicodedata.category(character)
    return (
        category in _HIDDEN
        or category == "Zs"  # any space but the ordinary one
        or character in _BLANK
        or 0xFE00 <= ord(character) <= 0xFE0F
        or 0xE0100 <= ord(character) <= 0xE01EF
    )


_FIELDS_LEFT_OUT = ("created_at", "updated_at")
"""Fields of an object that only repeat the time of the entry, so that the page leaves them out."""


def differences(pub: Mapping[str, Any]) -> list[str]:
    """Return the fields that a change altered, each with its value before and after. The list is
    empty if the object was created or removed, or if the entry does not hold both values."""
    before, after = pub.get("before"), pub.get("after")
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return []
    return [
        f"{shown(name)}: {_value(before.get(name))} → {_value(after.get(name))}"
        for name in sorted(before.keys() | after.keys())
        if name not in _FIELDS_LEFT_OUT and before.get(name) != after.get(name)
    ]


def changed(pub: Mapping[str, Any]) -> list[str]:
    """Return the lines that describe a change: the differing values (or the whole object, if it was
    created or removed), the revision at which it was published, and the SHA-256 of the object
    before and after. The list is empty for an entry that is not in this form."""
    if "before_sha256" not in pub:
        return []
    before, after, detail = pub.get("before"), pub.get("after"), pub.get("detail")
    lines = differences(pub) or _whole("made: ", after) or _whole("removed: ", before)
    if isinstance(detail, dict):
        known = after if isinstance(after, dict) else {}
        lines += _whole("", {name: detail[name] for name in detail if name not in known})
    published = pub.get("published")
    lines += [_published(each) for each in (published if isinstance(published, list) else ())]
    for title, name in (("before", "before_sha256"), ("after", "after_sha256")):
        if pub.get(name) is not None:
            lines.append(f"<span class=small>SHA-256 {title}: {shown(pub[name])}</span>")
    return lines


def _whole(title: str, members: Any) -> list[str]:
    if not isinstance(members, dict):
        return []
    told = [
        f"{shown(name)}: {_value(value)}"
        for name, value in sorted(members.items())
        if name not in _FIELDS_LEFT_OUT and value not in (None, [], "")
    ]
    return [f"{title}{told[0]}", *told[1:]] if told else []


def _published(each: Any) -> str:
    if not isinstance(each, list) or len(each) != 3:
        return _value(each)  # no version of ours wrote that
    name, digest, revision = each
    if digest is None:
        return f"<span class=small>{shown(name)} gone at revision {shown(revision)}</span>"
    return (
        f"<span class=small>published at revision {shown(revision)}: {shown(name)}, SHA-256 "
        f"{shown(digest)}</span>"
    )


def _value(value: Any) -> str:
    if value is None or value in ([], ""):
        return "none"
    return shown(value if isinstance(value, str) else orjson.dumps(value).decode())


_FACTS = tuple(
    (title, name)
    for (_, title), name in sorted(
        (each.report, each.shown) for each in FIELDS if each.report and each.shown
    )
)
"""The facts shown below a decision: each one's title, and its name in the decoded event."""
_WITHOUT = {"user_id": "erased, or left out", "sidecar_id": "the control API"}
_FLAGGED = {
    "time_doubtful": "of its arrival: the sidecar's clock was wrong, or the record was long under "
    "way"
}


class Entry(NamedTuple):
    """A decoded entry of the report, together with its item in the report's JSON."""

    item: Item
    wire: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.wire["kind"])

    @property
    def at(self) -> str:
        """The entry's time, by the clock of the enforcement point (the sidecar) if one made it."""
        return str(time_of(self.wire))


def entries_of(items: list[Item]) -> list[Entry]:
    return [Entry(item, orjson.loads(item.entry)) for item in items]


def story(entry: Entry) -> list[str]:
    """Return the cells of an entry's row in the page's main table: number, time and event."""
    told = {"decision": _decision, "lineage": _lineage}.get(entry.kind, _other)
    proven = (
        '<span class="yes">in the checkpoint</span>'
        if entry.item.proof is not None
        else '<span class="no">in no checkpoint yet</span>'
    )
    number = f"{entry.wire['seq']}<br><span class=small>{proven}</span>"
    return [number, shown(entry.at), told(entry)]


def policies(entries: list[Entry]) -> list[list[str]]:
    """Return the rows of the table of policies: name, id and version, numbers of allowed and denied
    decisions, and the policy documents cited. They are in the order of each policy's first
    decision."""
    counts: Counter[tuple[Any, ...]] = Counter()
    order: dict[tuple[Any, ...], dict[str, None]] = {}
    for entry in entries:
        if entry.kind == "decision":
            response = entry.wire["pub"]["response"]
            by = tuple(map(response.get, ("policy_name", "policy_id", "policy_version")))
            documents = order.setdefault(by, {})
            if (digest := cited_role(entry.wire)) is not None:
                documents[digest] = None
            counts[*by, response["decision"]] += 1
    return [
        [
            shown(name),
            "no policy decided" if id_ is None else f"{shown(id_)}, version {shown(version)}",
            str(counts[name, id_, version, "ALLOW"]),
            str(counts[name, id_, version, "DENY"]),
            "<br>".join(map(shown, documents)) or "none",
        ]
        for (name, id_, version), documents in order.items()
    ]


def releases(entries: list[Entry]) -> list[list[str]]:
    """Return the rows of the table of what followed the decisions: number, event, action, outcome,
    and details such as the SHA-256 of a response."""
    found = []
    for entry in entries:
        if entry.kind == "lineage":
            action = lineage_action(entry.wire, entry.item.openings)
            detail = action["detail"]
            found.append(
                [
                    str(action["seq"]),
                    shown(action["event_id"]),
                    shown(action["action_type"]),
                    shown(action["outcome"] or "not told"),
                    "erased, or left out" if detail is None else _members(detail),
                ]
            )
    return found


def changes(entries: list[Entry]) -> list[list[str]]:
    """Return the rows of the table of changes: number, time, changed object, key, and the values
    before and after. An entry in another form is shown with its whole content."""
    found = []
    for entry in entries:
        if entry.kind not in ("decision", "lineage"):
            pub = dict(entry.wire["pub"])
            what, by = pub.pop("what", entry.kind), pub.pop("by", "the log")
            details = "<br>".join(changed(pub)) or _members(pub)
            row = [str(entry.wire["seq"]), shown(entry.at), shown(what), shown(by), details]
            found.append(row)
    return found


def digests(entries: list[Entry]) -> list[list[str]]:
    """Return the rows of the table of hashes: number, id and leaf hash of every entry."""
    return [
        [str(each.wire["seq"]), shown(each.wire["eid"]), leaf_hash(each.item.entry).hex()]
        for each in entries
    ]


def _decision(entry: Entry) -> str:
    event = audit_event(entry.wire, leaf_hash(entry.item.entry), entry.item.openings)
    verdict = "ALLOW" if event["decision"] == "ALLOW" else "DENY"
    version = event["policy_version"]
    by = shown(event["policy_name"]) + f", version {shown(version)}" * (version is not None)
    facts = [(title, _fact(name, event[name])) for title, name in _FACTS]
    told = "; ".join(f"{title} {shown(value)}" for title, value in facts if value is not None)
    head = f'<span class="{verdict}">{verdict}</span> by policy {by}: {shown(event["reason"])}'
    return f"{head}<br><span class=small>{told}</span>"


def _fact(name: str, value: Any) -> Any:
    """Return a fact of a decision as text; None if there is nothing to show."""
    if isinstance(value, bool):
        return _FLAGGED[name] if value else None
    return value or _WITHOUT.get(name, value)


def _lineage(entry: Entry) -> str:
    action = lineage_action(entry.wire, entry.item.openings)
    done, outcome = shown(action["action_type"]), shown(action["outcome"] or "not told")
    event = shown(action["event_id"])
    return (
        f"after that decision: {done}, outcome {outcome}<br><span class=small>event {event}</span>"
    )


def _other(entry: Entry) -> str:
    pub = entry.wire["pub"]
    what, by = shown(pub.get("what", entry.kind)), pub.get("by")
    told = f"{what} {shown(pub['target'])}" if "target" in pub else what
    told += f", by {shown(by)}" if by is not None else ""
    differing = "; ".join(differences(pub))
    return told + f"<br><span class=small>{differing}</span>" * bool(differing)


def _members(value: Any) -> str:
    if not isinstance(value, dict):
        return shown(value if isinstance(value, str) else orjson.dumps(value).decode())
    return "<br>".join(
        f"{shown(name)}: " + shown(each if isinstance(each, str) else orjson.dumps(each).decode())
        for name, each in sorted(value.items())
    )
