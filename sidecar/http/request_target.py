"""The canonical form of a request target: made once, from the raw bytes. What policies judge, what
the audit trail names and what the data source receives are this one form (data-sources.md R2,
proxy.md A2).

Two spellings that a data source might read as one have one form, or are refused. Pure: knows no
connection and no policy.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from policies.ground.errors import Malformed

# Most targets are already canonical: no percent sign, no segment that starts with a dot, no `//`.
_PLAIN = re.compile(r"(?:/[A-Za-z0-9_~:@!$&'()*,=-][A-Za-z0-9._~:@!$&'()*,=-]*)+/?|/").fullmatch

# Of what RFC 3986 lets stand in a segment, `+` and `;` are written as escapes: to some servers a
# bare `+` is a space and a bare `;` ends the segment, and they would read what nobody judged.
_LITERAL = "~:@!$&'()*,="

_UNREADABLE = re.compile(r"[^\x21-\x7e]|[#\\]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Target(NamedTuple):
    """A request target in canonical form.

    `path` starts with `/` and is what is judged and forwarded. `query` is as the client sent it,
    None where there was no `?`. `segments` are the path's parts, percent-decoded once; a trailing
    slash leaves an empty last one.
    """

    path: str
    query: str | None
    segments: tuple[str, ...]

    @property
    def forwarded(self) -> str:
        """The target on the request line to the data source."""
        return self.path if self.query is None else f"{self.path}?{self.query}"


def canonical(raw: str) -> Target:
    """The canonical form of `raw`, the target as the client wrote it.

    Raises `Malformed` for what two readers could take for two things. Canonical in, the same out:
    `canonical(canonical(x).forwarded) == canonical(x)`.
    """
    path, mark, query = raw.partition("?")
    if _PLAIN(path) and not (mark and _UNREADABLE.search(query)):
        return Target(path, query if mark else None, tuple(path[1:].split("/")))
    found = _UNREADABLE.search(raw)
    if found:
        raise Malformed(f"the target holds {_shown(found.group())}")
    if not path.startswith("/"):
        raise Malformed("the target does not start with `/`")
    if path.startswith("//"):
        raise Malformed("the target starts with `//`")
    if _BAD_ESCAPE.search(path):
        raise Malformed("the path holds a `%` that escapes nothing")
    parts = path[1:].split("/")
    segments = tuple(_segment(part) for part in parts)
    if "" in segments[:-1]:
        raise Malformed("the path holds an empty segment")
    return Target(
        "/" + "/".join(encode_segment(segment) for segment in segments),
        query if mark else None,
        segments,
    )


def encode_segment(segment: str) -> str:
    """One decoded segment as the canonical form writes it."""
    return quote(segment, safe=_LITERAL)


def _segment(part: str) -> str:
    try:
        text = unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        # Overlong forms (`%c0%ae` for a dot) end here too: strict UTF-8 has none.
        raise Malformed("the path holds an escape that is not UTF-8") from None
    if "/" in text or "\\" in text:
        raise Malformed("the path holds an escaped slash")
    if _CONTROL.search(text):
        raise Malformed("the path holds an escaped control character")
    if _ESCAPE.search(text):
        raise Malformed("the path is escaped twice")
    # `..;x` is `..` to servers that cut a segment's parameters off before they resolve dots.
    if text.partition(";")[0] in (".", ".."):
        raise Malformed("the path holds a dot segment")
    return text


def _shown(character: str) -> str:
    if character in "#\\":
        return f"`{character}`"
    return "a space" if character == " " else "a character that is not printable ASCII"
