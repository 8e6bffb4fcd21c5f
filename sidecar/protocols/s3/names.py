"""Which bucket and key an S3 request names, wherever it names one: in its path, in the header that
says what to copy, in the list of what to delete. Pure. Knows no operation.

A name in a header or a body is held to the rule of the path (data-sources.md R2): what can't stand
in a path that is judged can't be named in another place either.
"""

import re
from typing import NamedTuple
from urllib.parse import quote

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical
from sidecar.protocols.messages import FieldIterable, Unresolved
from sidecar.protocols.shared.aws_signing import STREAMING

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]").fullmatch

# Names that stand for another bucket (access points, Object Lambda), or whose requests are signed
# in another way (directory buckets and tables).
_OTHER_NAMES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--xa-s3", "--table-s3")

COPY_SOURCE = b"x-amz-copy-source"

# What changes who may read, or what a name stands for, by a header of an ordinary write.
_GOVERNING = (
    b"x-amz-grant-",
    b"x-amz-tagging",
    b"x-amz-object-lock-",
    b"x-amz-bypass-governance-retention",
    b"x-amz-mfa",
    b"x-amz-website-redirect-location",
    b"x-amz-rename-source",
)
_HARMLESS_ACL = (b"private", b"bucket-owner-full-control")

# What S3 reads besides; a name that is new to this list may be a new way to name a source.
_KNOWN = frozenset(
    (
        COPY_SOURCE,
        b"x-amz-acl",
        b"x-amz-content-sha256",
        b"x-amz-date",
        b"x-amz-decoded-content-length",
        b"x-amz-expected-bucket-owner",
        b"x-amz-max-parts",
        b"x-amz-metadata-directive",
        b"x-amz-mp-object-size",
        b"x-amz-object-attributes",
        b"x-amz-optional-object-attributes",
        b"x-amz-part-number-marker",
        b"x-amz-request-payer",
        b"x-amz-s3session-token",
        b"x-amz-sdk-checksum-algorithm",
        b"x-amz-security-token",
        b"x-amz-source-expected-bucket-owner",
        b"x-amz-storage-class",
        b"x-amz-trailer",
        b"x-amz-user-agent",
        b"x-amz-write-offset-bytes",
    )
)
_KNOWN_FAMILIES = (
    b"x-amz-meta-",
    b"x-amz-checksum-",
    b"x-amz-server-side-encryption",
    b"x-amz-copy-source-if-",
    b"x-amz-copy-source-range",
    b"x-amz-copy-source-server-side-encryption-",
    b"x-amz-if-match-",
)


class S3Name(NamedTuple):
    """A key of a bucket; "" for the bucket itself."""

    bucket: str
    key: str


def bucket_named(text: str) -> str:
    """`text`, if it is a bucket's own name; raises `Unresolved`."""
    if not _BUCKET(text) or text.endswith(_OTHER_NAMES):
        raise Unresolved("the bucket is not stated by its own name")
    return text


def key_named(text: str) -> str:
    """`text`, if it could stand in a path; raises `Malformed`."""
    if canonical("/" + quote(text, safe="/")).segments != tuple(text.split("/")):
        raise Malformed("the key can't be named in a path")
    return text


def passes(name: bytes) -> bool:
    """Whether a field of AWS's, its name in lower case, goes on to S3."""
    return name in _KNOWN or name == b"x-amzn-trace-id" or name.startswith(_KNOWN_FAMILIES)


def check_fields(fields: FieldIterable, *, writes: bool = False) -> None:
    """Raises `Malformed` for a field of AWS's that is not known here, stands twice, or could be
    signed in two ways; and, where no object `writes`, for one that only an upload has."""
    seen: set[bytes] = set()
    for raw, value in fields:
        name = raw.lower()
        if not name.startswith(b"x-amz") and name not in (b"content-type", b"content-md5"):
            continue
        of_upload = name.startswith(COPY_SOURCE) or value.startswith(b"STREAMING-")
        if (of_upload and not writes) or (
            name.startswith(b"x-amz-") and not (passes(name) or governs(name, value))
        ):
            raise Malformed(f"the header `{name.decode()[:64]}` is not known here")
        if name in seen:
            raise Malformed(f"the header `{name.decode()[:64]}` stands twice")
        if not value.isascii():
            raise Malformed(f"the header `{name.decode()[:64]}` is not ASCII")
        seen.add(name)


def governs(name: bytes, value: bytes) -> bool:
    """Whether a field changes more than the object that is written."""
    if name == b"x-amz-acl":
        return value not in _HARMLESS_ACL
    return name.startswith(_GOVERNING)


def check_framing(fields: FieldIterable) -> None:
    """Raises `Malformed` for a streamed body that holds signatures of the agent's, which nobody can
    verify once the sidecar signs, and for one whose framing is told in only one of two places."""
    told = [value for name, value in fields if name.lower() == b"x-amz-content-sha256"]
    codings = [value for name, value in fields if name.lower() == b"content-encoding"]
    framed = any(b"aws-chunked" in value.lower() for value in codings)
    signed = any(value.startswith(b"STREAMING-") and value != STREAMING for value in told)
    if signed:
        raise Malformed("the body is signed chunk by chunk: send it whole, or with a trailer")
    if framed and told != [STREAMING]:
        raise Malformed("the body is framed as `aws-chunked` and its header does not say so")


def copied(fields: FieldIterable) -> S3Name | None:
    """What `x-amz-copy-source` names, None where there is none. Raises `Malformed`, `Unresolved`.

    `[/]bucket/key[?versionId=…]`, escaped. An access point's name (`arn:…`) is another name for a
    bucket.
    """
    found = [value for name, value in fields if name.lower() == COPY_SOURCE]
    if not found:
        return None
    text = found[0].decode("latin-1").strip()
    path, mark, version = text.partition("?")
    if mark and not re.fullmatch(r"versionId=[A-Za-z0-9._%-]{1,1024}", version):
        raise Malformed("the header `x-amz-copy-source` names more than a version")
    # To some readers a bare `+` is a space; to some an escaped `?` begins the version.
    if "+" in path or "%3f" in path.lower():
        raise Malformed("the header `x-amz-copy-source` can be read in two ways")
    segments = canonical("/" + path.removeprefix("/")).segments
    if len(segments) < 2 or segments[1] == "":
        raise Malformed("the header `x-amz-copy-source` names no key")
    return S3Name(bucket_named(segments[0]), "/".join(segments[1:]))
