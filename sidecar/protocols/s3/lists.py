"""S3's lists of names, of which only part may be seen, and its list of what to delete.

What may be seen stays as S3 wrote it, byte for byte: the rest is cut out of the text. An element
that is not known here is none that may pass. Knows elements. Knows nothing of who asks.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.budget import Budget, OverBudget
from sidecar.protocols.messages import ForwardedPart
from sidecar.protocols.s3.xml import Element, UnreadableXml, inside, read, span
from sidecar.protocols.strict_body import MAX_BRACKETS, has_too_many_brackets

Visible = Callable[[str], bool]

# What stands for a name in a list, and the element in it that holds the name.
_ENTRIES = {
    "Contents": "Key",
    "CommonPrefixes": "Prefix",
    "Version": "Key",
    "DeleteMarker": "Key",
    "Upload": "Key",
}
_LISTS = frozenset(("ListBucketResult", "ListVersionsResult", "ListMultipartUploadsResult"))
# The words of a list about itself. What the request said, said again, is no news to who asked.
_WORDS = frozenset(
    (
        "Name", "Bucket", "Prefix", "Delimiter", "Marker", "StartAfter", "ContinuationToken",
        "KeyMarker", "VersionIdMarker", "UploadIdMarker", "MaxKeys", "MaxUploads", "KeyCount",
        "IsTruncated", "EncodingType", "NextMarker", "NextKeyMarker", "NextVersionIdMarker",
        "NextUploadIdMarker", "NextContinuationToken",
    )
)  # fmt: skip
_MARKERS = ("NextMarker", "NextKeyMarker")
_OF_OBJECTS = frozenset(("Key", "VersionId", "ETag", "LastModifiedTime", "Size"))

_MOST_DELETED = 1000
_LONGEST_TOKEN = 4096


def listed(body: bytes, visible: Visible) -> ForwardedPart:
    """A list of keys without those that may not be seen. Raises `UpstreamFailed` for one that
    can't be read, and for one that can't be gone on with but by a name that may not be seen."""
    root = _answer(body)
    if root.name not in _LISTS:
        raise UpstreamFailed("the data source's list has a form that is not known here")
    encoding = root.one("EncodingType")
    url = encoding is not None and encoding.text == "url"
    cuts: list[tuple[int, int, bytes]] = []
    hidden: set[str] = set()
    kept = 0
    for child in root.children:
        inner = _ENTRIES.get(child.name)
        if inner is None:
            if child.name not in _WORDS or child.children:
                raise UpstreamFailed("the data source's list holds what is not known here")
            continue
        name = child.one(inner)
        if name is None or name.children:
            raise UpstreamFailed("the data source's list has an entry without a name")
        names = _names(name.text, url=url)
        if all(visible(each) for each in names):
            kept += 1
        else:
            hidden |= names
            cuts.append((*span(body, child), b""))
    if _tells(root, visible, hidden, url=url) or (_goes_on(root) is None and cuts and not kept):
        # To cut out what names the next page would end the list there.
        raise UpstreamFailed(
            "the list goes on from a name that may not be seen: ask for a longer prefix"
        )
    withheld = len(cuts)
    count = root.one("KeyCount")
    if cuts and count is not None:
        cuts.append((*inside(body, count), b"%d" % kept))
    return ForwardedPart(_cut(body, cuts), withheld)


def buckets(body: bytes, visible: Visible) -> bytes:
    """A list of buckets without those that may not be seen. Raises `UpstreamFailed`."""
    root = _answer(body)
    if root.name not in ("ListAllMyBucketsResult", "ListAllMyDirectoryBucketsResult"):
        raise UpstreamFailed("the data source's list has a form that is not known here")
    cuts = []
    for child in root.children:
        if child.name != "Buckets":
            if child.name not in ("Owner", "ContinuationToken", "Prefix"):
                raise UpstreamFailed("the data source's list holds what is not known here")
            continue
        for bucket in child.children:
            name = bucket.one("Name")
            if bucket.name != "Bucket" or name is None:
                raise UpstreamFailed("the data source's list has an entry without a name")
            if not visible(name.text):
                cuts.append((*span(body, bucket), b""))
    return _cut(body, cuts)


def deleted(raw: bytes, _media: str | None, budget: Budget) -> list[str]:
    """The keys that a body asks to delete, as `Route.inspected` reads bodies. Raises
    `Malformed`."""
    if has_too_many_brackets(raw):
        raise OverBudget(f"the body has more than {MAX_BRACKETS} tags")
    try:
        root = read(raw)
    except UnreadableXml as error:
        raise Malformed(f"the body is not the XML that names what to delete: {error}") from error
    if root.name != "Delete":
        raise Malformed("the body does not name what to delete")
    keys = []
    for child in root.children:
        if child.name == "Quiet":
            continue
        key = child.one("Key")
        others = {each.name for each in child.children} - _OF_OBJECTS
        if child.name != "Object" or key is None or key.children or others:
            raise Malformed("the body names something to delete in a way not known here")
        budget.charge_parts(1)
        keys.append(key.text)
    if not 0 < len(keys) <= _MOST_DELETED:
        raise Malformed(f"the body does not name 1 to {_MOST_DELETED} keys")
    return keys


def _names(text: str, *, url: bool) -> set[str]:
    """What a name in a list stands for. With `url` it is escaped, and a `+` in it is a space to
    some and itself to others: both must be seen."""
    if not url:
        return {text}
    spellings = {text, text.replace("+", " ")}
    return {unquote_to_bytes(each).decode("utf-8", "replace") for each in spellings}


def _tells(root: Element, visible: Visible, hidden: set[str], *, url: bool) -> bool:
    """Whether the place where the next page begins names what may not be seen."""
    for marker in _MARKERS:
        found = root.one(marker)
        if found is not None and not all(visible(each) for each in _names(found.text, url=url)):
            return True
    token = root.one("NextContinuationToken")
    if token is None:
        return False
    if len(token.text) > _LONGEST_TOKEN:
        # It is searched for each hidden name, and a key has 1,024 bytes at most.
        return True
    # AWS's token means nothing to others. Elsewhere it is a key, as it is or in Base64.
    try:
        text = b64decode(token.text + "==", altchars=b"-_").decode("utf-8")
    except (NotBase64, UnicodeDecodeError):
        text = ""
    told = any(each in token.text or each in text for each in hidden)
    return told or (text != "" and text.isprintable() and not visible(text))


def _goes_on(root: Element) -> bool | None:
    """Whether there is a next page, and the list itself says where; None where there is one and the
    client is left to go on from the last name that it sees."""
    more = root.one("IsTruncated")
    if more is None or more.text.strip() != "true":
        return False
    said = any(root.one(each) for each in (*_MARKERS, "NextContinuationToken"))
    return True if said else None


def _answer(body: bytes) -> Element:
    try:
        return read(body)
    except UnreadableXml as error:
        raise UpstreamFailed(f"the data source's list can't be read: {error}") from error


def _cut(body: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes:
    left: list[bytes] = []
    at = 0
    for start, end, instead in sorted(cuts):
        left += (body[at:start], instead)
        at = end
    return b"".join((*left, body[at:]))
