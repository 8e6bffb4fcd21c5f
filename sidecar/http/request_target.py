"""Brings a request target into canonical form, once, from the raw bytes. Policies judge this form,
the audit trail records it and the data source receives it (`protocols/RULES.md` and
`proxy/RULES.md`, Paths).

Spellings that a data source might treat as the same target get the same canonical form, or are
refused. Pure: knows no connection and no policy.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from policies.ground.errors import Malformed

# Most targets are already canonical: no percent sign, no segment that starts with a dot, no `//`.
_PLAIN = re.compile(r"(?:/[A-Za-z0-9_~:@!$&'()*,=-][A-Za-z0-9._~:@!$&'()*,=-]*)+/?|/").fullmatch

# RFC 3986 allows `+` and `;` in a segment, but the canonical form escapes them: some servers read a
# bare `+` as a space and end the segment at a bare `;`, so they would see a path that nothing
# judged.
_LITERAL = "~:@!$&'()*,="

_UNREADABLE = re.compile(r"[^\x21-\x7e]|[#\\]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Target(NamedTuple):
    """A request target in canonical form.

    `path` starts with `/`; it is judged and forwarded. `query` is as the client sent it, None if
    there was no `?`. `segments` are the parts of the path, percent-decoded once; a trailing slash
    makes an empty last segment. A segment that contains a `/` had it escaped, and in `path` it is
    escaped too.
    """

    path: str
    query: str | None
    segments: tuple[str, ...]

    @property
    def forwarded(self) -> str:
        """The target as it is written on the request line to the data source."""
        return self.path if self.query is None else f"{self.path}?{self.query}"


def canonical(raw: str, *, opaque: bool = False) -> Target:
    """Return the canonical form of `raw`, the target as the client wrote it. With `opaque`, an
    escaped slash is part of its segment, and stays escaped.

    Raises `Malformed` for a target that two readers could understand differently. Idempotent:
    `canonical(canonical(x).forwarded) == canonical(x)`.
    """
    # Only the first `?` divides a target; later ones belong to the query (RFC 3986 section 3.4).
    path, mark, query = raw.partition("?")
    if _PLAIN(path) and not (mark and _UNREADABLE.search(query)):
        return Target(path, query if mark else None, tuple(path[1:].split("/")))
    found = _UNREADABLE.search(raw)
    if found:
        raise Malformed(f"the target contains {_shown(found.group())}")
    if not path.startswith("/"):
        raise Malformed("the target does not start with `/`")
    if path.startswith("//"):
        # Some parsers read `//host/path` as an authority.
        raise Malformed("the target starts with `//`")
    if _BAD_ESCAPE.search(path):
        raise Malformed("the path contains a `%` without two hexadecimal digits after it")
    parts = path[1:].split("/")
    read = _opaque_segment if opaque else _segment
    segments = tuple(read(part) for part in parts)
    if "" in segments[:-1]:
        raise Malformed("the path contains an empty segment")
    return Target(
        "/" + "/".join(encode_segment(segment) for segment in segments),
        query if mark else None,
        segments,
    )


def encode_segment(segment: str) -> str:
    """Return one decoded path segment, percent-encoded as in the canonical form."""
    return quote(segment, safe=_LITERAL)


def _opaque_segment(part: str) -> str:
    pieces = part.replace("%2f", "%2F").split("%2F")
    if len(pieces) == 1:
        return _segment(part)
    # A data source that decodes the segment all the same must not find an empty or a dot segment,
    # which would lead it to yet another path.
    if "" in pieces:
        raise Malformed("the path contains an escaped slash with nothing on one side of it")
    return "/".join(_segment(piece) for piece in pieces)


def _segment(part: str) -> str:
    try:
        text = unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        # Overlong forms (`%c0%ae` for a dot) fail here too: strict UTF-8 has none.
        raise Malformed("the path contains an escape that is not UTF-8") from None
    # A data source that decodes before it splits the path would see more segments.
    if "/" in text or "\\" in text:
        raise Malformed("the path contains an escaped slash")
    if _CONTROL.search(text):
        raise Malformed("the path contains an escaped control character")
    # A data source that decodes twice would see another path.
    if _ESCAPE.search(text):
        raise Malformed("the path is escaped twice")
    # Servers that strip a segment's parameters before resolving dots read `..;x` as `..`.
    if text.partition(";")[0] in (".", ".."):
        raise Malformed("the path contains a dot segment")
    return text


def _shown(character: str) -> str:
    if character in "#\\":
        return f"`{character}`"
    return "a space" if character == " " else "a character that is not printable ASCII"
