"""Says in words what a `change` entry changed. Knows the members of the entry
(`policies/trail/README.md`, "A change"); every text from it goes through `shown`."""

from collections.abc import Mapping
from typing import Any

import orjson

from control_api.verifier.report.shown import shown

_TOLD_ELSEWHERE = ("created_at", "updated_at")
"""Members that only repeat the time of the entry."""


def differences(pub: Mapping[str, Any]) -> list[str]:
    """The members that differ, with their values before and after; empty for an object that was
    made or removed, or if the entry doesn't hold both."""
    before, after = pub.get("before"), pub.get("after")
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return []
    return [
        f"{shown(name)}: {_value(before.get(name))} → {_value(after.get(name))}"
        for name in sorted(before.keys() | after.keys())
        if name not in _TOLD_ELSEWHERE and before.get(name) != after.get(name)
    ]


def changed(pub: Mapping[str, Any]) -> list[str]:
    """What was changed, from what to what, and at which revision it was published; empty for an
    entry in another form."""
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
        if name not in _TOLD_ELSEWHERE and value not in (None, [], "")
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
