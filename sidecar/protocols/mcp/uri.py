"""The canonical form of a resource's URI, which policies use (`protocols/RULES.md`, MCP).

A server may treat a URI as plain text, parse it by RFC 3986, or parse it as a browser does (WHATWG
URL). Spellings that any of these takes for the same URI get one form here or are refused. Pure.
"""

import re
from ipaddress import AddressValueError, IPv4Address
from urllib.parse import quote

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical, encode_segment
from sidecar.protocols.messages import Unresolved
from sidecar.protocols.shared.escapes import CONTROL, decode_escapes

MAX_LENGTH = 2048

_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL).fullmatch
# Control characters and `\`, which a browser drops or rewrites, and the `#` of a fragment.
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\\#]").search

# The schemes whose authority and path a browser normalises (WHATWG's "special" schemes), each with
# the default port that it removes.
_SPECIAL = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "file": ""}
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?").fullmatch
# No leading zeros: a port has only one spelling.
_PORT = re.compile(r"[1-9][0-9]{0,4}").fullmatch
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch

_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_ESCAPED_AGAIN = re.compile(r"%[0-9A-Fa-f]{2}").search


def canonical_uri(text: object) -> str:
    """The canonical form of a URI. Raises `Unresolved` if two parsers could disagree on its
    meaning.

    A canonical URI is returned unchanged. Case is significant, except in the scheme, and in the
    host of a special scheme such as `http`.
    """
    if not isinstance(text, str) or not text or len(text) > MAX_LENGTH:
        raise Unresolved(f"the uri must be a string of 1 to {MAX_LENGTH} characters")
    found = _FORM(text)
    if found is None or _UNREADABLE(text) or text != text.strip():
        raise Unresolved("the uri has no scheme, or holds a `#`, a `\\` or a control character")
    scheme, rest = found[1].lower(), found[2]
    head, _, query = rest.partition("?")
    try:
        return f"{scheme}:{_canonical_hierarchy(scheme, head)}{_canonical_query(query)}"
    except Malformed as error:
        raise Unresolved(f"the uri is ambiguous: {error.message}") from error


def _canonical_hierarchy(scheme: str, head: str) -> str:
    if not head.startswith("//"):
        # A browser reads `http:a` as `http://a`; to other parsers `a` is a path.
        if scheme in _SPECIAL:
            raise Malformed(f"`{scheme}:` must be followed by `//`")
        return _canonical_path(head)
    authority, slash, path = head[2:].partition("/")
    path = _canonical_path(slash + path)
    if scheme in _SPECIAL:
        return f"//{_canonical_authority(scheme, authority)}{path or '/'}"
    # In other schemes the authority is a name like those in the path, often the resource's own.
    return f"//{_canonical_path(authority)}{path}"


def _canonical_authority(scheme: str, authority: str) -> str:
    host, colon, port = authority.lower().partition(":")
    # RFC 8089 section 2: `file:///x` and `file://localhost/x` are the same file.
    if scheme == "file" and authority.lower() in ("", "localhost"):
        return ""
    # This also refuses `user@host`, IPv6 and names outside ASCII, which have several spellings.
    if not _HOST(host) or ".." in host or _is_unusual_ipv4(host):
        raise Malformed("the host must be a plain name or an IPv4 address")
    if not colon or port == _SPECIAL[scheme]:
        return host
    if not _PORT(port) or scheme == "file":
        raise Malformed("the port must be a plain number")
    return f"{host}:{port}"


def _is_unusual_ipv4(host: str) -> bool:
    """Whether a browser reads the host as an IPv4 address in an unusual spelling, like `0x7f.1`."""
    if not _NUMBER(host.rpartition(".")[2]):
        return False
    try:
        return str(IPv4Address(host)) != host
    except AddressValueError:
        return True


def _canonical_path(path: str) -> str:
    """The path by the rules of `request_target.canonical`: no dot segments, no empty segments, no
    escaped slashes, no double escapes."""
    if not path:
        return ""
    absolute = path.startswith("/")
    written = canonical(quote(path if absolute else "/" + path, safe=_PRINTABLE)).path
    return written if absolute else written[1:]


def _canonical_query(query: str) -> str:
    if not query:
        return ""
    # Some readers take `+` for a space, and `;` for the end of a pair.
    if "+" in query or ";" in query:
        raise Malformed("the query holds a `+` or `;`: write `%20`, `%2B` or `%3B`")
    pairs = [pair.partition("=") for pair in query.split("&")]
    return "?" + "&".join(
        _canonical_text(name) + equals + _canonical_text(value) for name, equals, value in pairs
    )


def _canonical_text(text: str) -> str:
    plain = decode_escapes(text)
    if CONTROL(plain) or "\\" in plain or _ESCAPED_AGAIN(plain):
        raise Malformed("the query holds an escaped control character or `\\`, or is escaped twice")
    segments = plain.split("/")
    # A server that treats the URI as a file name reads the query as part of the path.
    if any(segment.partition(";")[0] in (".", "..") for segment in segments):
        raise Malformed("the query holds a dot segment")
    # `encode_segment` leaves `=` and `&`, which would divide pairs here.
    return "/".join(map(encode_segment, segments)).replace("=", "%3D").replace("&", "%26")
