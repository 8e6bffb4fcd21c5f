"""S3, and whatever speaks its interface (data-sources.md 5.7; the operations of botocore's model).

What a request does is told by its method, by whether its path names a key, a bucket or neither, and
by the names of its query's parameters (`?acl`): a query that no row below describes in full is
denied. A bucket that is named by the host is written into the path, and goes on in that form.

A key is read as `s3://<alias>/<bucket>/<key>`, and listed as the prefix that was asked for; of a
list that goes out, the names that may not be read are cut. The request is signed anew with the
sidecar's own credentials (R9). Knows S3; judges nothing.
"""

from collections.abc import Callable
from urllib.parse import urlsplit

from policies.ground.errors import Malformed
from sidecar.http.headers import without_whole_body_fields
from sidecar.http.request_target import Target, encode_segment
from sidecar.protocols.messages import (
    DenialResponse,
    FetchedResponse,
    Fields,
    ForwardPlan,
    OutgoingRequest,
    Permits,
    RoutedRequest,
    SourceRef,
    Visibility,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch
from sidecar.protocols.s3 import lists as s3_lists
from sidecar.protocols.s3 import xml as s3_xml
from sidecar.protocols.s3.names import (
    bucket_named,
    check_fields,
    check_framing,
    copied,
    governs,
    key_named,
    passes,
)
from sidecar.protocols.s3.operations import S3Operations, row
from sidecar.protocols.shared.aws_query import parse_query
from sidecar.protocols.shared.aws_signing import AwsSigner
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source


class S3(SourceProtocol):
    """One S3 endpoint."""

    signs_requests = True
    uses_host = True

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._naming = SourceNames(source)
        self._signer = AwsSigner(source.aws, "s3", monotonic)
        # Below these names a bucket is a host: the data source's own, and what the agent calls it.
        own = urlsplit(source.upstream).hostname
        called = (name.partition(":")[0] for name in source.hosts if name.startswith("*."))
        self._domains = tuple(name.lower() for name in (f".{own}", *(n[1:] for n in called)))

    def apply_host(self, host: str, target: Target) -> Target:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.lower().removesuffix(".")
        for domain in self._domains:
            bucket = name.removesuffix(domain)
            if not bucket:
                raise Malformed("the header `host` names no bucket")
            if bucket != name:
                path = f"/{encode_segment(bucket)}{target.path}"
                return Target(path, target.query, (bucket, *target.segments))
        return target

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return _TABLE.match(method, target)

    async def of_object(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The key that the path names."""
        check_fields(asked.fields)
        return (self._place(*asked.path_params),)

    async def of_bucket(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The bucket that the path names."""
        check_fields(asked.fields)
        return (self._place(asked.path_params[0], ""),)

    async def of_prefix(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The prefix of which the names are asked for."""
        check_fields(asked.fields)
        prefix = parse_query(asked.target.query).get("prefix", "")
        return (self._place(asked.path_params[0], key_named(prefix)),)

    async def of_written(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The key that is written, and the one that is read for it."""
        check_fields(asked.fields, writes=True)
        check_framing(asked.fields)
        source = copied(asked.fields)
        written = self._place(*asked.path_params)
        return (written,) if source is None else (written, self._place(*source))

    async def of_deleted(self, asked: RoutedRequest) -> tuple[SourceRef, ...]:
        """The keys that the body names."""
        check_fields(asked.fields)
        bucket = asked.path_params[0]
        return tuple(self._place(bucket, key_named(key)) for key in asked.body)

    def hint(self, asked: RoutedRequest) -> SourceRef | None:
        """The key or bucket that would be written."""
        return self._naming.of(asked.path_params[0], *asked.path_params[1].split("/"))

    def governing(self, asked: RoutedRequest) -> ProtocolRoute | None:
        """A write is closed that says, by a header, who may read what it writes."""
        if any(governs(name.lower(), value) for name, value in asked.fields):
            return _GOVERNED
        found = self.match(asked.method, asked.target)
        return None if found is None else found.route

    def filtered(
        self, asked: RoutedRequest, _places: tuple[SourceRef, ...], sight: Visibility
    ) -> ForwardPlan:
        """A list without the names that may not be read."""
        bucket = asked.path_params[0]

        def visible(name: str) -> bool:
            return sight.permits(self._naming.of(bucket, *name.split("/")))

        return ForwardPlan(filter_response=lambda answer: s3_lists.listed(answer.body, visible))

    async def buckets(self, asked: RoutedRequest, permits: Permits) -> FetchedResponse:
        """The buckets that may be listed."""
        check_fields(asked.fields)
        answer = await asked.fetch(asked.target.forwarded)
        if answer.status != 200:
            return answer
        body = s3_lists.buckets(answer.body, lambda name: permits(self._naming.of(name, "")))
        return answer._replace(body=body, fields=without_whole_body_fields(answer.fields))

    def render_denial(
        self, _asked: RoutedRequest | None, refusal: DenialResponse
    ) -> FetchedResponse:
        code = "InvalidRequest" if refusal.status == 400 else "AccessDenied"
        body = s3_xml.error(code, refusal.message, refusal.decision)
        return FetchedResponse(refusal.status, "", [(b"Content-Type", b"application/xml")], body)

    async def sign(self, outgoing: OutgoingRequest) -> Fields:
        return await self._signer.sign(outgoing, passes)

    def _place(self, bucket: str, key: str) -> SourceRef:
        return self._naming.of(bucket_named(bucket), *key.split("/"))


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN = RouteClass.BULK, RouteClass.ADMIN
_READ = "GET HEAD"
_object, _bucket = {"find_sources": S3.of_object}, {"find_sources": S3.of_bucket}
_list = {"find_sources": S3.of_prefix, "plan_forward": S3.filtered}
_write = {"find_sources": S3.of_written, "hint_source": S3.hint, "refine": S3.governing}
_gone = {"find_sources": S3.of_object, "hint_source": S3.hint}
_PAGE = "delimiter encoding-type prefix"
_ANSWER = (
    "response-cache-control response-content-disposition response-content-encoding "
    "response-content-language response-content-type response-expires"
)

# Settings of a bucket, read or changed: they decide who may read, where copies go, what is kept.
_SETTINGS = (
    "abac accelerate acl cors encryption lifecycle logging notification ownershipControls policy "
    "publicAccessBlock replication requestPayment tagging website"
)

ROWS = (
    row(_READ, "object", "", f"versionId partNumber {_ANSWER}", _RETRIEVE, **_object),
    row("GET", "object", "torrent", "", _RETRIEVE, **_object),
    row("GET", "object", "attributes", "versionId", _RETRIEVE, **_object),
    row("POST", "object", "select select-type", "", _RETRIEVE, **_object),
    row("GET", "object", "annotation annotationName", "versionId", _RETRIEVE, **_object),
    row(
        "GET", "object", "annotation",
        "versionId max-annotation-results annotation-prefix continuation-token",
        _METADATA, **_object,
    ),
    row("GET", "object", "tagging", "versionId", _METADATA, **_object),
    row("GET", "object", "legal-hold", "versionId", _METADATA, **_object),
    row("GET", "object", "retention", "versionId", _METADATA, **_object),
    row("GET", "object", "uploadId", "max-parts part-number-marker", _METADATA, **_object),
    row("PUT", "object", "", "", _WRITE, **_write),
    row("PUT", "object", "partNumber uploadId", "", _WRITE, **_write),
    row("POST", "object", "uploads", "", _WRITE, **_write),
    row("POST", "object", "uploadId", "", _WRITE, **_write),
    row("DELETE", "object", "", "versionId", _WRITE, **_gone),
    row("DELETE", "object", "uploadId", "", _WRITE, **_gone),
    # Who may read, how long it is kept, what it is called, where a copy of it goes.
    row("GET PUT", "object", "acl", "versionId", _ADMIN),
    row("PUT DELETE", "object", "tagging", "versionId", _ADMIN),
    row("PUT", "object", "legal-hold", "versionId", _ADMIN),
    row("PUT", "object", "retention", "versionId", _ADMIN),
    row("PUT", "object", "encryption", "versionId", _ADMIN),
    row("PUT", "object", "renameObject", "", _ADMIN),
    row("PUT DELETE", "object", "annotation", "versionId annotationName", _ADMIN),
    row("POST", "object", "restore", "versionId", _BULK),
    row("GET", "bucket", "", f"{_PAGE} marker max-keys", _METADATA, **_list),
    row(
        "GET", "bucket", "list-type",
        f"{_PAGE} max-keys continuation-token fetch-owner start-after", _METADATA, **_list,
    ),
    row(
        "GET", "bucket", "versions", f"{_PAGE} key-marker max-keys version-id-marker",
        _METADATA, **_list,
    ),
    row(
        "GET", "bucket", "uploads", f"{_PAGE} key-marker max-uploads upload-id-marker",
        _METADATA, **_list,
    ),
    row("HEAD", "bucket", "", "", _METADATA, **_bucket),
    row("GET", "bucket", "location", "", _METADATA, **_bucket),
    row("GET", "bucket", "versioning", "", _METADATA, **_bucket),
    row("GET", "bucket", "object-lock", "", _METADATA, **_bucket),
    row(
        "POST", "bucket", "delete", "", _WRITE,
        parse_body=s3_lists.deleted, find_sources=S3.of_deleted, hint_source=S3.hint,
    ),
    # Hands out credentials.
    row("GET", "bucket", "session", "", _ADMIN),
    # An upload by a form, which names its key inside; or the end of an Object Lambda's answer.
    row("POST", "bucket", "", "", _ADMIN),
    row("PUT DELETE", "bucket", "", "", _ADMIN),
    row("PUT", "bucket", "versioning", "", _ADMIN),
    row("PUT", "bucket", "object-lock", "", _ADMIN),
    *(row("GET PUT DELETE", "bucket", each, "", _ADMIN) for each in _SETTINGS.split()),
    row("GET", "bucket", "policyStatus", "", _ADMIN),
    *(
        row("GET PUT DELETE", "bucket", each, "id continuation-token", _ADMIN)
        for each in ("analytics", "intelligent-tiering", "inventory", "metrics")
    ),
    *(
        row("GET POST PUT DELETE", "bucket", each, "", _ADMIN)
        for each in (
            "metadataConfiguration", "metadataTable", "metadataAnnotationTable",
            "metadataInventoryTable", "metadataJournalTable",
        )
    ),
    row(
        "GET", "service", "",
        "max-buckets max-directory-buckets continuation-token prefix bucket-region",
        _METADATA, compose_response=S3.buckets,
    ),
)  # fmt: skip
"""Every operation of S3. What is not here is denied as `unclassified_route`."""

_GOVERNED = ProtocolRoute("PUT POST", "/{bucket}/{key} with rights, tags or locks", _ADMIN)

_TABLE = S3Operations(ROWS)
