"""Reads who a statement is for from a comment before or behind it, in the format of sqlcommenter:
`/*sluice.user='alice',sluice.task='report'*/`.

Keys and values are percent-encoded. Comments without a key of ours are the agent's own, and pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from policies.ground.canonical import identifier_fault
from sidecar.protocols.postgres.parameters import Setting
from sidecar.protocols.postgres.parser import Unreadable

_OWN = "sluice."
_SPACE = " \t\n\r\v\f"
MAX_COMMENT = 4096
"""The longest comment that is read, in characters. A longer one is the agent's own."""
MAX_COMMENTS = 16
"""How many comments are read at each end of a text."""


class StatedAttribution(NamedTuple):
    """The user, session and task that the comments of a text state; None for what they don't."""

    user: str | None = None
    session: str | None = None
    task: str | None = None


def stated_in_comments(text: str) -> StatedAttribution:
    """Return what the comments at both ends of a text state. The text must be one that `parse`
    accepts: then `*/` at its end does end a comment. Raises `Unreadable` for a value that is stated
    twice or is not an identifier, and for a comment of ours in another format."""
    if "sluice" not in text.lower():
        return StatedAttribution()
    found: dict[str, str] = {}
    for comment in _comments(text):
        for key, value in _members(comment):
            field = Setting(key, value).attributes
            if field is None:
                raise Unreadable(f"the comment states `{key[:64]}`, which is not known")
            if field in found:
                raise Unreadable(f"the comments state the {field} twice")
            fault = identifier_fault(value)
            if fault is not None:
                raise Unreadable(f"the comment's `{key}` {fault}")
            found[field] = value
    return StatedAttribution(**found)


def _comments(text: str) -> Iterator[str]:
    """Yield the comments at the beginning, and those at the end, without their marks."""
    first, last = 0, len(text)
    for _ in range(MAX_COMMENTS):
        start = first + len(text[first:last]) - len(text[first:last].lstrip(_SPACE))
        end = text.find("*/", start, last)
        if not text.startswith("/*", start) or end < start + 2:
            break
        comment = text[start + 2 : end]
        if "/*" in comment:  # nested, so not of this format
            break
        yield comment
        first = end + 2
    for _ in range(MAX_COMMENTS):
        rest = text[first:last].rstrip(_SPACE + ";")
        start = rest.rfind("/*")
        if not rest.endswith("*/") or start < 0 or start + 4 > len(rest):
            return
        comment = rest[start + 2 : -2]
        if "*/" in comment:
            return
        yield comment
        last = first + start


def _members(comment: str) -> Iterator[tuple[str, str]]:
    """Yield our keys and values of a comment; nothing if it has none."""
    if len(comment) > MAX_COMMENT:
        return
    pairs = [member.partition("=") for member in _split(comment)]
    keys = [_decoded(key.strip(_SPACE)).lower() for key, _, _ in pairs]
    if not any(key.startswith(_OWN) for key in keys):
        return
    for key, (_, _, quoted) in zip(keys, pairs, strict=True):
        value = quoted.strip(_SPACE)
        if len(value) < 2 or value[0] != "'" or value[-1] != "'":
            raise Unreadable(f"a comment with `{_OWN}…` must consist of `key='value'`")
        if key.startswith(_OWN):
            yield key, _decoded(value[1:-1].replace("\\'", "'"))


def _split(comment: str) -> list[str]:
    """Split at the commas outside of quoted values, in which `\\'` is a quote."""
    members = [""]
    quoted = escaped = False
    for character in comment:
        if character == "," and not quoted:
            members.append("")
            continue
        if character == "'" and not escaped:
            quoted = not quoted
        escaped = character == "\\" and not escaped
        members[-1] += character
    return members


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("a value in a comment is not UTF-8") from None
