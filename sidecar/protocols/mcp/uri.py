"""The canonical form of a resource's URI, by which policies know it (data-sources.md 5.6).

A server may read a URI as a plain text, as RFC 3986 has it, or as a browser does (WHATWG URL):
spellings that one of them takes for the same have one form here, or are refused. Pure.
"""

import re
from ipaddress import AddressValueError, IPv4Address
from urllib.parse import quote, unquote_to_bytes

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical, encode_segment
from sidecar.protocols.messages import Unresolved

_LONGEST = 2048

_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL).fullmatch
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\\#]").search

# Schemes whose authority and path a browser normalises, and the port that it leaves out.
_SPECIAL = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "file": ""}
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?").fullmatch
_PORT = re.compile(r"[1-9][0-9]{0,4}").fullmatch
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch

_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_ESCAPED_AGAIN = re.compile(r"%[0-9A-Fa-f]{2}").search
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]").search


def canonical_uri(text: object) -> str:
    """The one form of a URI; raises `Unresolved` where two readers could take it for two things.

    Canonical in, the same out. Case counts, but in a scheme and in the host of `http` and its like.
    """
    if not isinstance(text, str) or not text or len(text) > _LONGEST:
        raise Unresolved(f"the uri is not a text of 1 to {_LONGEST} characters")
    found = _FORM(text)
    if found is None or _UNREADABLE(text) or text != text.strip():
        raise Unresolved("the uri has no scheme, or holds a `#`, a `\\`, or what can't be seen")
    scheme, rest = found[1].lower(), found[2]
    head, _, query = rest.partition("?")
    try:
        return f"{scheme}:{_hierarchy(scheme, head)}{_query(query)}"
    except Malformed as error:
        raise Unresolved(f"the uri can be read in two ways: {error.message}") from error


def _hierarchy(scheme: str, head: str) -> str:
    if not head.startswith("//"):
        if scheme in _SPECIAL:
            raise Malformed(f"`{scheme}:` is not followed by `//`")
        return _path(head)
    authority, slash, path = head[2:].partition("/")
    path = _path(slash + path)
    if scheme in _SPECIAL:
        return f"//{_authority(scheme, authority)}{path or '/'}"
    # Of other schemes it is a name like those of the path, and often the resource's own.
    return f"//{_path(authority)}{path}"


def _authority(scheme: str, authority: str) -> str:
    host, colon, port = authority.lower().partition(":")
    if scheme == "file" and authority.lower() in ("", "localhost"):
        return ""
    if not _HOST(host) or ".." in host or _strange_number(host):
        raise Malformed("the host is not a plain name or IPv4 address")
    if not colon or port == _SPECIAL[scheme]:
        return host
    if not _PORT(port) or scheme == "file":
        raise Malformed("the port is no plain number")
    return f"{host}:{port}"


def _strange_number(host: str) -> bool:
    """Whether a browser reads it as an IPv4 address, and it is not written as one usually is."""
    if not _NUMBER(host.rpartition(".")[2]):
        return False
    try:
        return str(IPv4Address(host)) != host
    except AddressValueError:
        return True


def _path(path: str) -> str:
    """As `target.py` writes a path, whose rules hold here too: no dot segments, no empty ones, no
    escaped slashes, nothing escaped twice."""
    if not path:
        return ""
    absolute = path.startswith("/")
    written = canonical(quote(path if absolute else "/" + path, safe=_PRINTABLE)).path
    return written if absolute else written[1:]


def _query(query: str) -> str:
    if not query:
        return ""
    if "+" in query or ";" in query:
        raise Malformed("the query holds a `+` or `;`: write `%20`, `%2B` or `%3B`")
    pairs = [pair.partition("=") for pair in query.split("&")]
    return "?" + "&".join(_part(name) + equals + _part(value) for name, equals, value in pairs)


def _part(text: str) -> str:
    if _BAD_ESCAPE(text):
        raise Malformed("the query holds a `%` that escapes nothing")
    try:
        plain = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the query holds an escape that is not UTF-8") from None
    if _CONTROL(plain) or "\\" in plain or _ESCAPED_AGAIN(plain):
        raise Malformed("the query holds an escaped control character or `\\`, or is escaped twice")
    segments = plain.split("/")
    # To a server that takes a URI for the name of a file, the query is more of its path.
    if any(segment.partition(";")[0] in (".", "..") for segment in segments):
        raise Malformed("the query holds a dot segment")
    return "/".join(map(encode_segment, segments)).replace("=", "%3D").replace("&", "%26")
