"""Parses XML as S3 writes it, filters S3's lists of keys and buckets, and reads a request's list of
keys to delete. Hidden entries are cut out of the text; the rest stays as S3 wrote it, byte for
byte."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes
from xml.parsers.expat import ExpatError, ParserCreate

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.protocol import ForwardedPart
from sidecar.protocols.strict_body import (
    MAX_BRACKETS,
    MAX_KEYS,
    Budget,
    OverBudget,
    has_too_many_brackets,
)

# Attributes' values may hold a `>`.
_TAG = re.compile(rb"""<[^"'>]*(?:"[^"]*"[^"'>]*|'[^']*'[^"'>]*)*>""").match
# S3's lists have four levels.
_MAX_DEPTH = 8
_BOM = b"\xef\xbb\xbf"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Element(NamedTuple):
    """An XML element: its position in the body, its own text, and its children."""

    name: str
    start: int
    """The byte offset at which the start tag begins."""
    close: int
    """The byte offset at which the end tag begins; for an element without an end tag (`<a/>`), the
    offset after the element."""
    text: str
    children: list["Element"]
    attributes: tuple[str, ...] = ()
    """The names of the element's attributes, without those that declare a namespace."""

    def one(self, name: str) -> "Element | None":
        """Return the child with this name if there is exactly one, otherwise None."""
        # Readers differ on which of two counts.
        found = [child for child in self.children if child.name == name]
        return found[0] if len(found) == 1 else None


class UnreadableXml(Exception):
    """the text is not XML as S3 writes it"""


def read(body: bytes) -> Element:
    """Parse `body`, and return the root element. Raises `UnreadableXml`."""
    return _ElementBuilder(body).root()


def span(body: bytes, element: Element) -> tuple[int, int]:
    """Return the offsets in `body` at which the element begins and ends, with its tags. `body` is
    the text that was parsed."""
    _, close = content_span(body, element)
    return element.start, close if _is_empty(body, element) else _tag_end(body, close)


def content_span(body: bytes, element: Element) -> tuple[int, int]:
    """Return the offsets in `body` at which the content of the element begins and ends, without its
    tags."""
    start = _tag_end(body, element.start)
    return start, start if _is_empty(body, element) else element.close


def _is_empty(body: bytes, element: Element) -> bool:
    # `<a/>` has no end tag: expat reports its end at the position after it.
    return body.startswith(b"/>", _tag_end(body, element.start) - 2)


def _tag_end(body: bytes, at: int) -> int:
    # expat has accepted this tag, so the expression matches it.
    found = _TAG(body, at)
    assert found is not None
    return found.end()


def error_response(code: str, message: str, decision: dict[str, str]) -> bytes:
    """Return an error as S3's XML, the only form that S3 clients read. `decision` may be empty."""

    def element(name: str, text: str) -> str:
        # XML 1.0 can't hold these characters, not even escaped.
        return f"<{name}>{escape(_NOT_XML.sub('?', text), quote=False)}</{name}>"

    whole = element("Code", code) + element("Message", message)
    if decision:
        decision_xml = "".join(element(name, text) for name, text in decision.items())
        whole += element("RequestId", decision["event_id"]) + f"<Decision>{decision_xml}</Decision>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{whole}</Error>'.encode()


class _ElementBuilder:
    """Builds `Element` objects from the events of the XML parser expat. Offsets are in bytes of the
    UTF-8 text."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._open: list[tuple[str, int, list[str], list[Element], tuple[str, ...]]] = []
        self._root: Element | None = None
        parser = self._parser = ParserCreate("UTF-8")
        parser.buffer_text = True
        parser.XmlDeclHandler = self._on_declaration
        parser.StartDoctypeDeclHandler = self._on_doctype
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.CharacterDataHandler = self._on_text

    def root(self) -> Element:
        try:
            # expat detects UTF-16 by its first bytes, even when told that the text is UTF-8.
            if "\0" in self._body.decode("utf-8") or self._body.startswith(_BOM):
                raise UnreadableXml("it is not UTF-8 without a byte order mark")
            self._parser.Parse(self._body, True)
        except (ExpatError, UnicodeDecodeError) as error:
            raise UnreadableXml(str(error)) from None
        assert self._root is not None
        return self._root

    def _on_declaration(self, version: str, encoding: str | None, _standalone: int) -> None:
        # XML 1.1 has more line ends, so its readers would find other texts.
        if version != "1.0":
            raise UnreadableXml(f"it declares XML {version[:64]}, not 1.0")
        # expat reads UTF-8 whatever is declared, but the agent's parser may go by the declaration.
        if encoding is not None and encoding.lower() != "utf-8":
            raise UnreadableXml(f"it declares the encoding `{encoding[:64]}`, not UTF-8")

    def _on_doctype(self, *_of: Any) -> None:
        # Without a document type there are only XML's own entities, so nothing expands ("billion
        # laughs") and nothing is fetched.
        raise UnreadableXml("it declares a document type")

    def _on_start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) >= _MAX_DEPTH:
            raise UnreadableXml(f"it is nested more than {_MAX_DEPTH} levels deep")
        others = tuple(each for each in attributes if each.partition(":")[0] != "xmlns")
        self._open.append((name, self._parser.CurrentByteIndex, [], [], others))

    def _on_end(self, name: str) -> None:
        _, start, text, children, attributes = self._open.pop()
        close = self._parser.CurrentByteIndex
        element = Element(name, start, close, "".join(text), children, attributes)
        if self._open:
            self._open[-1][3].append(element)
        else:
            self._root = element

    def _on_text(self, text: str) -> None:
        if self._open:
            self._open[-1][2].append(text)


Visible = Callable[[str], bool]

Cut = tuple[int, int, bytes]
"""A change to the text of a list: the start and end of the bytes to remove, and the bytes that
replace them."""

# The elements of a list's entries, and the element in each that holds the name.
_ENTRIES = {
    "Contents": "Key", "CommonPrefixes": "Prefix", "Version": "Key", "DeleteMarker": "Key",
    "Upload": "Key",
}  # fmt: skip
_LISTS = frozenset(("ListBucketResult", "ListVersionsResult", "ListMultipartUploadsResult"))
_BUCKET_LISTS = frozenset(("ListAllMyBucketsResult", "ListAllMyDirectoryBucketsResult"))
_BUCKET_LIST_MEMBERS = frozenset(("Owner", "ContinuationToken", "Prefix"))
# The elements that describe the list itself. Many repeat the request, which reveals nothing new.
_LIST_MEMBERS = frozenset((
    "Name", "Bucket", "Prefix", "Delimiter", "Marker", "StartAfter", "ContinuationToken",
    "KeyMarker", "VersionIdMarker", "UploadIdMarker", "MaxKeys", "MaxUploads", "KeyCount",
    "IsTruncated", "EncodingType", "NextMarker", "NextKeyMarker", "NextVersionIdMarker",
    "NextUploadIdMarker", "NextContinuationToken",
))  # fmt: skip
_MARKERS = ("NextMarker", "NextKeyMarker")
_UNKNOWN_OBJECT = "the body describes an object to delete in an unknown form"
_OBJECT_MEMBERS = frozenset(("Key", "VersionId", "ETag", "LastModifiedTime", "Size"))

_MAX_TOKEN = 4096


def filter_keys(body: bytes, visible: Visible) -> ForwardedPart:
    """Return the list of keys without those that the agent may not see. Raises `UpstreamFailed` if
    the list can't be read, or if its next page starts at a hidden name."""
    root = _parse(body, _LISTS)
    encoding = root.one("EncodingType")
    url = encoding is not None and encoding.text == "url"
    cuts: list[Cut] = []
    hidden: set[str] = set()
    kept = 0
    for child in root.children:
        if child.name not in _ENTRIES:
            # An unknown element, or one inside a known one, may hold names.
            if child.name not in _LIST_MEMBERS or child.children:
                raise _unknown(child)
            continue
        names = _possible_names(_name_in(child, _ENTRIES[child.name]), url=url)
        if all(visible(each) for each in names):
            kept += 1
        else:
            hidden |= names
            cuts.append((*span(body, child), b""))
    # Without a marker the client continues from the last name it sees, and here it would see none.
    stuck = bool(cuts) and not kept and _has_next_page(root) is None
    if stuck or _next_page_reveals(root, visible, hidden, url=url):
        # Cutting the marker out would end the list here, and the agent would miss the rest.
        hidden_start = "starts at a name that you may not see: ask for a longer prefix"
        raise UpstreamFailed(f"the list's next page {hidden_start}")
    withheld = len(cuts)
    count = root.one("KeyCount")
    if cuts and count is not None:
        # S3's own count would reveal how many names are hidden.
        cuts.append((*content_span(body, count), b"%d" % kept))
    return ForwardedPart(_cut(body, cuts), withheld)


def filter_buckets(body: bytes, visible: Visible) -> bytes:
    """Return the list of buckets without those that the agent may not see. Raises
    `UpstreamFailed`."""
    cuts: list[Cut] = []
    for child in _parse(body, _BUCKET_LISTS).children:
        if child.name != "Buckets":
            if child.name not in _BUCKET_LIST_MEMBERS:
                raise _unknown(child)
            continue
        for bucket in child.children:
            if bucket.name != "Bucket":
                raise _unknown(bucket)
            if not visible(_name_in(bucket, "Name")):
                cuts.append((*span(body, bucket), b""))
    return _cut(body, cuts)


def keys_to_delete(raw: bytes, _media: str | None, budget: Budget) -> list[str]:
    """Return the keys that a body asks to delete; the `parse_body` of that route. Raises
    `Malformed`."""
    if has_too_many_brackets(raw):
        raise OverBudget(f"the body has more than {MAX_BRACKETS} tags")
    try:
        root = read(raw)
    except UnreadableXml as error:
        raise Malformed(f"the body is not readable XML: {error}") from error
    if root.name != "Delete":
        raise Malformed(f"the body's root must be `Delete`, not `{root.name[:64]}`")
    _expect_members(root)
    keys = []
    for child in root.children:
        # It only asks for a shorter response.
        if child.name == "Quiet":
            _expect_text(child)
        else:
            keys.append(_key_to_delete(child))
            budget.charge_key()
    if not keys:
        raise Malformed(f"the body must name 1 to {MAX_KEYS} keys")
    return keys


def _key_to_delete(entry: Element) -> str:
    key = entry.one("Key")
    # An unknown member may name another key, and so may a second `Key`.
    others = {each.name for each in entry.children} - _OBJECT_MEMBERS
    if entry.name != "Object" or key is None or others:
        raise Malformed(_UNKNOWN_OBJECT)
    _expect_members(entry)
    for each in entry.children:
        _expect_text(each)
    if not key.text or key.text != key.text.strip():
        raise Malformed(
            "a key to delete is empty, or begins or ends with white space, which some servers "
            "drop: delete such a key alone, by its path"
        )
    return key.text


def _expect_members(element: Element) -> None:
    # Some servers read an attribute, or text between the members, as one more member.
    if element.attributes or element.text.strip():
        raise Malformed(_UNKNOWN_OBJECT)


def _expect_text(element: Element) -> None:
    # Some servers look for keys at any depth.
    if element.attributes or element.children:
        raise Malformed(_UNKNOWN_OBJECT)


def _possible_names(text: str, *, url: bool) -> set[str]:
    """Return all names that a text in a list may stand for. With `url`, the text is
    percent-encoded."""
    if not url:
        return {text}
    # Parsers differ on whether `+` is a space, so both names must be visible.
    spellings = {text, text.replace("+", " ")}
    return {unquote_to_bytes(each).decode("utf-8", "replace") for each in spellings}


def _next_page_reveals(root: Element, visible: Visible, hidden: set[str], *, url: bool) -> bool:
    markers = [found for found in map(root.one, _MARKERS) if found is not None]
    if not all(visible(n) for each in markers for n in _possible_names(each.text, url=url)):
        return True
    token = root.one("NextContinuationToken")
    if token is None:
        return False
    # Each hidden name is searched for in the token, so its length bounds the work. A key has at
    # most 1,024 bytes.
    if len(token.text) > _MAX_TOKEN:
        return True
    # AWS's tokens are opaque. Other servers use a key, in clear or in Base64.
    try:
        text = b64decode(token.text + "==", altchars=b"-_").decode("utf-8")
    except (NotBase64, UnicodeDecodeError):
        # Opaque, or a key in clear: only the text itself is searched.
        text = ""
    revealed = any(each in token.text or each in text for each in hidden)
    return revealed or (text != "" and text.isprintable() and not visible(text))


def _has_next_page(root: Element) -> bool | None:
    """Return True if there is a next page and the list says where it starts, False if there is no
    next page. Returns None if there is one but the client has to continue from the last name that
    it sees."""
    # Version 1 of the list states `NextMarker` only if the request has a delimiter.
    more = root.one("IsTruncated")
    if more is None or more.text.strip() != "true":
        return False
    return any(map(root.one, (*_MARKERS, "NextContinuationToken"))) or None


def _parse(body: bytes, roots: frozenset[str]) -> Element:
    try:
        root = read(body)
    except UnreadableXml as error:
        raise UpstreamFailed(f"the data source's list can't be read: {error}") from error
    if root.name not in roots:
        raise UpstreamFailed(f"the data source's list has the unknown root `{root.name[:64]}`")
    return root


def _name_in(entry: Element, member: str) -> str:
    name = entry.one(member)
    if name is None or name.children:
        raise UpstreamFailed("the data source's list has an entry without a name")
    return name.text


def _unknown(element: Element) -> UpstreamFailed:
    return UpstreamFailed(f"the data source's list has the unknown element `{element.name[:64]}`")


def _cut(body: bytes, cuts: list[Cut]) -> bytes:
    left: list[bytes] = []
    at = 0
    # Sorted, because the count was cut last, wherever it stands in the list.
    for start, end, instead in sorted(cuts):
        left += (body[at:start], instead)
        at = end
    return b"".join((*left, body[at:]))
