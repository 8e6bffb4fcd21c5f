"""Finds the buckets and keys that an S3 request concerns: in its path, in the header with the copy
source, or in the list of keys to delete. Also checks AWS's header fields. A name in a header or a
body must follow the same rules as a name in a path (`protocols/RULES.md`, Paths)."""

import re
from typing import NamedTuple
from urllib.parse import quote

from policies.ground.errors import Malformed
from sidecar.http.headers import without_whole_body_fields
from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import (
    FetchedResponse,
    FieldIterable,
    ForwardPlan,
    Permits,
    RoutedRequest,
    SourceRef,
    Sources,
    Unresolved,
    Visibility,
)
from sidecar.protocols.s3.lists import filter_buckets, filter_keys
from sidecar.protocols.shared.aws_signing import STREAMING
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_queries import parse_query
from sidecar.settings.model import Source

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]").fullmatch

# Suffixes of names that stand for another bucket (access points, Object Lambda), or whose requests
# are signed differently (directory buckets and tables).
_OTHER_NAMES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--xa-s3", "--table-s3")

COPY_SOURCE = b"x-amz-copy-source"

# Headers by which an ordinary write changes who may read, or what a name stands for.
_GRANTING = (
    b"x-amz-grant-", b"x-amz-tagging", b"x-amz-object-lock-", b"x-amz-bypass-governance-retention",
    b"x-amz-mfa", b"x-amz-website-redirect-location", b"x-amz-rename-source",
)  # fmt: skip
_HARMLESS_ACL = (b"private", b"bucket-owner-full-control")

# The other headers that S3 reads. An unknown one is refused: it may be a new way to name a source.
_KNOWN = frozenset((
    COPY_SOURCE, b"x-amz-acl", b"x-amz-content-sha256", b"x-amz-date",
    b"x-amz-decoded-content-length", b"x-amz-expected-bucket-owner", b"x-amz-max-parts",
    b"x-amz-metadata-directive", b"x-amz-mp-object-size", b"x-amz-object-attributes",
    b"x-amz-optional-object-attributes", b"x-amz-part-number-marker", b"x-amz-request-payer",
    b"x-amz-s3session-token", b"x-amz-sdk-checksum-algorithm", b"x-amz-security-token",
    b"x-amz-source-expected-bucket-owner", b"x-amz-storage-class", b"x-amz-trailer",
    b"x-amz-user-agent", b"x-amz-write-offset-bytes",
))  # fmt: skip
_KNOWN_FAMILIES = (
    b"x-amz-meta-", b"x-amz-checksum-", b"x-amz-server-side-encryption", b"x-amz-copy-source-if-",
    b"x-amz-copy-source-range", b"x-amz-copy-source-server-side-encryption-", b"x-amz-if-match-",
)  # fmt: skip
# Headers that pass with one value only, which changes neither the operation nor what it names. SDKs
# for C++ and others state the only version of S3's API; those for Java and Ruby ask for a digest
# behind an object's bytes.
_KNOWN_VALUES = {b"x-amz-api-version": b"2006-03-01", b"x-amz-te": b"append-md5"}


class S3Name(NamedTuple):
    """A bucket and a key in it. The key is "" for the bucket itself."""

    bucket: str
    key: str


def expect_bucket(text: str) -> str:
    """Return `text` if it is the own name of a bucket. Raises `Unresolved` for an alias, such as
    that of an access point."""
    if not _BUCKET(text) or text.endswith(_OTHER_NAMES):
        raise Unresolved("the bucket must be named by its own name, not by an alias")
    return text


def expect_key(text: str) -> str:
    """Return `text` if it is a key that a path could name. Raises `Malformed` otherwise."""
    # A policy can only name what a path can: any other key would be judged as something else.
    if canonical("/" + quote(text, safe="/")).segments != tuple(text.split("/")):
        raise Malformed("the key holds something that a path may not hold")
    return text


def passes(name: bytes) -> bool:
    """Return whether an `x-amz…` field is forwarded to S3. `name` is in lower case."""
    known = name in _KNOWN or name in _KNOWN_VALUES or name == b"x-amzn-trace-id"
    return known or name.startswith(_KNOWN_FAMILIES)


def check_fields(fields: FieldIterable, *, writes: bool = False) -> None:
    """Check the `x-amz…` header fields, `content-type` and `content-md5`. Raises `Malformed` for a
    field that is unknown, occurs twice, or could be signed in two ways, or whose value is unknown;
    and, unless the request `writes` an object, for a field that only uploads have."""
    seen: set[bytes] = set()
    for raw, value in fields:
        name = raw.lower()
        if not name.startswith(b"x-amz") and name not in (b"content-type", b"content-md5"):
            continue
        of_upload = name.startswith(COPY_SOURCE) or value.startswith(b"STREAMING-")
        if (of_upload and not writes) or (
            name.startswith(b"x-amz-") and not (passes(name) or grants_access(name, value))
        ):
            raise Malformed(f"the header `{name.decode()[:64]}` is not allowed here")
        if value != (only := _KNOWN_VALUES.get(name, value)):
            raise Malformed(f"the header `{name.decode()}` must be `{only.decode()}`")
        # S3 may take either of the two.
        if name in seen:
            raise Malformed(f"the header `{name.decode()[:64]}` occurs twice")
        # Readers decode other characters differently, so they would sign different strings.
        if not value.isascii():
            raise Malformed(f"the header `{name.decode()[:64]}` is not ASCII")
        seen.add(name)


def grants_access(name: bytes, value: bytes) -> bool:
    """Return whether a header field of a write changes more than the object, such as who may read
    it. `name` is in lower case."""
    return value not in _HARMLESS_ACL if name == b"x-amz-acl" else name.startswith(_GRANTING)


def check_framing(fields: FieldIterable) -> None:
    """Raise `Malformed` for a streamed body whose chunks carry the agent's signatures, and for a
    body on whose framing two headers disagree."""
    digests = [value for name, value in fields if name.lower() == b"x-amz-content-sha256"]
    codings = [value for name, value in fields if name.lower() == b"content-encoding"]
    framed = any(b"aws-chunked" in value.lower() for value in codings)
    if any(value.startswith(b"STREAMING-") and value != STREAMING for value in digests):
        # Each chunk's signature continues that of the head, which the sidecar replaces.
        raise Malformed(
            "the body is signed chunk by chunk, but the sidecar signs requests: send it whole, "
            "or with an unsigned trailer"
        )
    if framed and digests != [STREAMING]:
        raise Malformed(
            "the body is framed as `aws-chunked`, but `x-amz-content-sha256` is not "
            f"`{STREAMING.decode()}`"
        )


def copy_sources(fields: FieldIterable) -> tuple[S3Name, ...]:
    """Return the key that the header `x-amz-copy-source` names, and every other key that a server
    might read instead; empty without this header. Raises `Malformed` and `Unresolved`.

    The header's form is `[/]bucket/key[?versionId=…]`, percent-encoded.
    """
    found = [value for name, value in fields if name.lower() == COPY_SOURCE]
    if not found:
        return ()
    # The only one: `check_fields` refuses a second.
    text = found[0].decode("latin-1").strip()
    path, mark, version = text.partition("?")
    if mark and not re.fullmatch(r"versionId=[A-Za-z0-9._%-]{1,1024}", version):
        raise Malformed("the header `x-amz-copy-source` may state only `versionId` after the key")
    # Some parsers read a bare `+` as a space.
    if "+" in path:
        raise Malformed("the header `x-amz-copy-source` is ambiguous: it holds a `+`")
    segments = canonical("/" + path.removeprefix("/")).segments
    if len(segments) < 2 or segments[1] == "":
        raise Malformed("the header `x-amz-copy-source` does not name a key")
    # This refuses an access point (`arn:…`), which is another name for a bucket.
    bucket, key = expect_bucket(segments[0]), "/".join(segments[1:])
    # An escaped `?` is part of the key. A server that decodes first would let it begin the version,
    # and read the key before it.
    before, mark, _ = key.partition("?")
    return (S3Name(bucket, key), S3Name(bucket, before)) if mark else (S3Name(bucket, key),)


class S3Sources:
    def __init__(self, source: Source) -> None:
        self._naming = SourceNames(source)

    async def of_object(self, request: RoutedRequest) -> Sources:
        check_fields(request.fields)
        return (self._source_of(*request.path_params),)

    async def of_bucket(self, request: RoutedRequest) -> Sources:
        check_fields(request.fields)
        # The bucket itself is the source with an empty key: `s3://<alias>/<bucket>/`.
        return (self._source_of(request.path_params[0], ""),)

    async def of_prefix(self, request: RoutedRequest) -> Sources:
        """Return the prefix whose keys are listed, as a source; the bucket if there is no
        prefix."""
        # Only the prefix: the keys below it are judged one by one in the response.
        check_fields(request.fields)
        prefix = parse_query(request.target.query).get("prefix", "")
        # No key that a path can name begins with `/`, and some servers read this prefix as none.
        key = "" if prefix == "/" else expect_key(prefix)
        return (self._source_of(request.path_params[0], key),)

    async def of_written(self, request: RoutedRequest) -> Sources:
        """Return the key that is written and, for a copy, the keys that may be read."""
        check_fields(request.fields, writes=True)
        check_framing(request.fields)
        read = copy_sources(request.fields)
        return tuple(self._source_of(*each) for each in (request.path_params, *read))

    async def of_deleted(self, request: RoutedRequest) -> Sources:
        check_fields(request.fields)
        bucket = request.path_params[0]
        return tuple(self._source_of(bucket, expect_key(key)) for key in request.body)

    def hint(self, request: RoutedRequest) -> SourceRef | None:
        # Unchecked, since it only names a denial: an alias of a bucket is recorded as it was sent.
        return self._naming.of(request.path_params[0], *request.path_params[1].split("/"))

    def plan_list(
        self, request: RoutedRequest, _sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        bucket = request.path_params[0]

        def visible(name: str) -> bool:
            return visibility.permits(self._naming.of(bucket, *name.split("/")))

        return ForwardPlan(filter_response=lambda response: filter_keys(response.body, visible))

    async def list_buckets(self, request: RoutedRequest, permits: Permits) -> FetchedResponse:
        check_fields(request.fields)
        response = await request.fetch(request.target.forwarded)
        # An error names only buckets that the request names.
        if response.status != 200:
            return response
        body = filter_buckets(response.body, lambda name: permits(self._naming.of(name, "")))
        return response._replace(body=body, fields=without_whole_body_fields(response.fields))

    def _source_of(self, bucket: str, key: str) -> SourceRef:
        return self._naming.of(expect_bucket(bucket), *key.split("/"))
