"""Filters S3's lists of keys and buckets, and reads a request's list of keys to delete.

Hidden entries are cut out of the text; the rest stays as S3 wrote it, byte for byte. Knows
elements; knows nothing of agents."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.protocol import ForwardedPart
from sidecar.protocols.s3.xml import Element, UnreadableXml, content_span, read, span
from sidecar.protocols.strict_body import (
    MAX_BRACKETS,
    MAX_KEYS,
    Budget,
    OverBudget,
    has_too_many_brackets,
)

Visible = Callable[[str], bool]

Cut = tuple[int, int, bytes]
"""The start and end of a cut, and the bytes that replace it."""

# The elements of a list's entries, and the element in each that holds the name.
_ENTRIES = {
    "Contents": "Key",
    "CommonPrefixes": "Prefix",
    "Version": "Key",
    "DeleteMarker": "Key",
    "Upload": "Key",
}
_LISTS = frozenset(("ListBucketResult", "ListVersionsResult", "ListMultipartUploadsResult"))
_BUCKET_LISTS = frozenset(("ListAllMyBucketsResult", "ListAllMyDirectoryBucketsResult"))
_BUCKET_LIST_MEMBERS = frozenset(("Owner", "ContinuationToken", "Prefix"))
# The elements that describe the list itself. Many repeat the request, which reveals nothing new.
_LIST_MEMBERS = frozenset(
    (
        "Name", "Bucket", "Prefix", "Delimiter", "Marker", "StartAfter", "ContinuationToken",
        "KeyMarker", "VersionIdMarker", "UploadIdMarker", "MaxKeys", "MaxUploads", "KeyCount",
        "IsTruncated", "EncodingType", "NextMarker", "NextKeyMarker", "NextVersionIdMarker",
        "NextUploadIdMarker", "NextContinuationToken",
    )
)  # fmt: skip
_MARKERS = ("NextMarker", "NextKeyMarker")
_UNKNOWN_OBJECT = "the body describes an object to delete in an unknown form"
_OBJECT_MEMBERS = frozenset(("Key", "VersionId", "ETag", "LastModifiedTime", "Size"))

_MAX_TOKEN = 4096


def filter_keys(body: bytes, visible: Visible) -> ForwardedPart:
    """Return the list of keys without those that the agent may not see. Raises `UpstreamFailed` if
    the list can't be read, or its next page starts at a hidden name."""
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
        raise UpstreamFailed(
            "the list's next page starts at a name that you may not see: ask for a longer prefix"
        )
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
    """Return the keys that a body asks to delete; a `BodyParser`. Raises `Malformed`."""
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
            continue
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
    """Return the names that a text in a list may stand for. With `url`, the text is
    percent-encoded."""
    if not url:
        return {text}
    # Parsers differ on whether `+` is a space, so both names must be visible.
    spellings = {text, text.replace("+", " ")}
    return {unquote_to_bytes(each).decode("utf-8", "replace") for each in spellings}


def _next_page_reveals(root: Element, visible: Visible, hidden: set[str], *, url: bool) -> bool:
    """Return whether the marker or token of the next page reveals a hidden name."""
    for marker in _MARKERS:
        found = root.one(marker)
        if found is not None and not all(
            visible(each) for each in _possible_names(found.text, url=url)
        ):
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
    """Return True if there is a next page and the list says where it starts, False if there is
    none. None if there is one, but the client has to continue from the last name that it sees."""
    # Version 1 of the list states `NextMarker` only if the request has a delimiter.
    more = root.one("IsTruncated")
    if more is None or more.text.strip() != "true":
        return False
    said = any(root.one(each) for each in (*_MARKERS, "NextContinuationToken"))
    return True if said else None


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
